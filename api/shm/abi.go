// Package shm defines the bytes that an application and its sidecar share: the 64-byte
// descriptor, the segment header and the handshake on the Unix socket. LAYOUT.md is the text of
// the contract; the sections cited here are sections of it. The package only encodes and decodes:
// packages ring, segment and wake access shared memory and call the system.
package shm

//go:generate go run ../../hack/cheader ../../clientlib/c/src/layout.h OR_=abi.go,handshake.go,beat.go,pieces.go,place.go,collblock.go OR_SEG_=segment/layout.go OR_NAME_=../names/names.go

// ABIVersion is the version of LAYOUT.md that this code implements. A client and a sidecar with
// different versions reject each other when the client attaches (§2).
const ABIVersion = 1

// Feature bits, exchanged in Hello and Welcome; the session uses the
// intersection (§2).
const (
	FeatureInline    uint64 = 1 << iota // payloads up to InlineMax travel in the descriptor
	FeatureStaged                       // private memory in pipelined chunks
	FeatureRMA                          // windows
	FeatureColl                         // engine-run collectives
	FeaturePlace                        // the client says on which processor it computes or waits
	FeatureGroups                       // a communicator may be named by another with the same ranks
	FeatureData                         // 32 bits of data are sent with the tag
	FeatureEpochs                       // post, start, complete, wait
	FeatureExpose                       // the client registers private memory of its own with the device
	FeatureShut                         // a context can be shut: its later messages are discarded
	FeatureReply                        // messages that want a reply
	FeaturePieces                       // the arena is allocated in pieces, when the client asks for them
	FeatureTypes                        // messages carry the type of their elements
	FeaturesAll      = FeatureInline | FeatureStaged | FeatureRMA | FeatureColl | FeaturePlace | FeatureGroups | FeatureData | FeatureEpochs | FeatureExpose | FeatureShut | FeatureReply | FeaturePieces | FeatureTypes
	FeaturesRequired = FeatureInline | FeatureStaged
)

// DescriptorBytes is the size of one ring entry: one cache line, so that the
// entry and the word that publishes it cross between cores together (§4).
const DescriptorBytes = 64

// InlineMax is the size of the largest payload that a descriptor holds (§4.2).
const InlineMax = 32

// MaxRequests bounds the requests that one session may have outstanding; a
// request number is below it (§4.1).
const MaxRequests = 1 << 16

// MaxExposures bounds the exposures that one session may have at a time (§5.2).
const MaxExposures = 256

// ExposureShift is the position of the number of an exposure in an address of class exposed; the
// bits below it are the offset (§4.2).
const ExposureShift = 48

// ProviderContext is the first context of a libfabric provider. Each of its endpoints has
// ProviderSpaces contexts: the first for tagged messages, the others for untagged messages and the
// provider's own messages (§8.2).
const (
	ProviderContext = 1 << 30
	ProviderSpaces  = 4
)

// AnySource, in a receive, matches every source rank.
const AnySource = ^uint32(0)

// Op is the operation that a descriptor requests or reports (§5, §6).
type Op uint8

// Submissions: application to sidecar (§5).
const (
	OpNone      Op = 0
	OpSend      Op = 1
	OpRecv      Op = 2
	OpProbe     Op = 3  // Aux ignore mask; FlagNow: answer at once
	OpMprobe    Op = 4  // like OpProbe; a hit takes the message out of matching
	OpMrecv     Op = 5  // Aux: message handle from an OpMprobe completion
	OpCancel    Op = 6  // Req: the request to cancel
	OpStage     Op = 7  // Req, Addr, Len: next chunk of a staged request
	OpComm      Op = 8  // Context, Addr, Len: group as packed uint32 world ranks
	OpCommFree  Op = 9  // Context
	OpColl      Op = 10 // Addr, Len: a CollBlock in the arena or slab
	OpReduced   Op = 11 // Req: the user-defined operation asked for is done
	OpWin       Op = 12 // Context: window number; Addr, Len: exposed memory; Aux: communicator
	OpWinFree   Op = 13 // Context
	OpPut       Op = 14 // Context, Peer, Addr, Len; Aux: target offset in bytes
	OpGet       Op = 15
	OpAcc       Op = 16 // Tag: type<<8 | op
	OpFetch     Op = 17 // inline: operand; result comes back inline
	OpCas       Op = 18 // inline: compare, swap; result comes back inline
	OpFlush     Op = 19 // Context, Peer (AnySource: every target)
	OpLock      Op = 20 // Context, Peer; FlagExclusive
	OpUnlock    Op = 21
	OpAbort     Op = 22 // Status: exit code; Addr, Len: reason text
	OpDetach    Op = 23 // orderly goodbye; nothing may follow
	OpDrop      Op = 24 // Aux: message handle that will not be received
	OpPost      Op = 25 // Context, Peer: it may access the window
	OpStart     Op = 26 // Context, Peer: wait for its post
	OpComplete  Op = 27 // Context, Peer: the accesses there are over
	OpWait      Op = 28 // Context, Peer: wait for its complete
	OpExpose    Op = 29 // Addr: address for the device, Len; Aux: number; Aux2: lkey | rkey<<32
	OpUnexpose  Op = 30 // Aux: number
	OpShut      Op = 31 // Context: its later messages are discarded
	OpSubmitMax Op = 31
)

// Completions: sidecar to application (§6).
const (
	OpDone    Op = 64 // Req ended with Status; Peer, Tag, Len describe the message
	OpMatched Op = 65 // a staged receive is matched: Peer, Tag, Len; now send OpStage
	OpStaged  Op = 66 // a chunk of a staged request is finished: Addr, Len; Aux: offset
	OpReduce  Op = 67 // run the user operation: Addr=dst, Aux=src, Len bytes; Status bit 0: see FlagSwap
	OpFailed  Op = 68 // the job failed: Peer is the rank, Status the code; text in the header
)

// Flags of a descriptor (§4.3).
const (
	FlagSync      uint8 = 1 << iota // send completes only when matched (MPI_Ssend)
	FlagSilent                      // no OpDone, whatever happens; counted in Retired
	FlagNow                         // probe: answer at once even when nothing is there
	FlagExclusive                   // lock
	FlagSwap                        // reduce: dst = dst (op) src, else dst = src (op) dst
	FlagData                        // send: Status is the message's data; done: Context is
	FlagReply                       // send: Status is the receive that takes the reply
	FlagTyped                       // send: Status is the type of the elements; done: Context is
)

// Class is the memory that holds a descriptor's payload (§4.2).
type Class uint8

// Classes of payload memory.
const (
	ClassNone    Class = 0
	ClassInline  Class = 1 // in the descriptor itself, InlineLen bytes
	ClassSlab    Class = 2 // Addr is an offset in the slab section of the segment
	ClassArena   Class = 3 // Addr is an offset in the arena
	ClassStaged  Class = 4 // in private memory; chunks follow by OpStage
	ClassExposed Class = 5 // in exposed memory: Addr is number<<ExposureShift | offset; else as staged
)

// Status is the result in a completion (§6.1).
type Status uint32

// Results of a request.
const (
	StatusOK          Status = 0
	StatusTruncated   Status = 1 // message longer than the receive buffer; Len is the message's
	StatusCancelled   Status = 2
	StatusPeerFailed  Status = 3
	StatusAborted     Status = 4
	StatusNoMessage   Status = 5 // FlagNow probe found nothing
	StatusInvalid     Status = 6 // refused: arguments do not fit (bounds, unknown window, ...)
	StatusNoMemory    Status = 7
	StatusUnsupported Status = 8
	StatusPeerLeft    Status = 9 // the peer has said goodbye: it sends and receives nothing any more
)

// Numeric kinds of a reduction (§7).
const (
	TypeInt8 uint8 = 1 + iota
	TypeInt16
	TypeInt32
	TypeInt64
	TypeUint8
	TypeUint16
	TypeUint32
	TypeUint64
	TypeFloat32
	TypeFloat64
	TypeComplex64
	TypeComplex128
)

// Operations of a reduction (§7).
const (
	ReduceSum uint8 = 1 + iota
	ReduceProd
	ReduceMin
	ReduceMax
	ReduceLAnd
	ReduceLOr
	ReduceLXor
	ReduceBAnd
	ReduceBOr
	ReduceBXor
	ReduceReplace
	ReduceNoOp
	ReduceUser uint8 = 255
)
