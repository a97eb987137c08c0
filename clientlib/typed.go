package outrigger

import "context"

// Send sends buf and returns when it may be changed again.
func Send[T Number](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	r, err := c.startSend(ctx, "send", elementsOf(buf), dst, tag, sendBuffered)
	if err != nil || r.s == nil {
		return err
	}
	_, err = r.await(ctx)
	return err
}

// Ssend is Send that returns only when the message has been matched by a
// receive.
func Ssend[T Number](ctx context.Context, c *Comm, buf []T, dst, tag int) error {
	r, err := c.startSend(ctx, "ssend", elementsOf(buf), dst, tag, sendSync)
	if err != nil {
		return err
	}
	_, err = r.await(ctx)
	return err
}

// Isend starts sending buf, which must not change until the request has ended.
func Isend[T Number](c *Comm, buf []T, dst, tag int) (Request, error) {
	return c.startSend(context.Background(), "isend", elementsOf(buf), dst, tag, sendPlain)
}

// Issend is Isend whose request completes only when a receive has matched the message.
func Issend[T Number](c *Comm, buf []T, dst, tag int) (Request, error) {
	return c.startSend(context.Background(), "issend", elementsOf(buf), dst, tag, sendSync)
}

// Recv receives a message of at most len(buf) elements. If the message has elements of another type,
// or its length is no multiple of the size of an element, it returns an ErrInvalid. []byte receives
// every type, and is received as every type. From NullRank Recv returns at once.
func Recv[T Number](ctx context.Context, c *Comm, buf []T, src, tag int) (Status, error) {
	return recvElements(ctx, c, elementsOf(buf), sizeOf[T](), src, tag)
}

// recvElements receives elements of elem bytes.
func recvElements(ctx context.Context, c *Comm, e elements, elem, src, tag int) (Status, error) {
	if src == NullRank {
		return nothing, nil
	}
	r, err := c.startRecv(ctx, "recv", e, src, tag, 0)
	if err != nil {
		return Status{}, err
	}
	out, err := r.await(ctx)
	if err == nil {
		err = c.whole(out.Status, elem, len(e.mem))
	}
	return out.Status, err
}

// Irecv starts a receive. The sidecar uses buf until the request has ended.
func Irecv[T Number](c *Comm, buf []T, src, tag int) (Request, error) {
	return c.startRecv(context.Background(), "irecv", elementsOf(buf), src, tag, 0)
}

// Sendrecv sends and receives at the same time, so that two ranks may exchange messages without an
// agreement on which one sends first.
func Sendrecv[T Number](ctx context.Context, c *Comm, sbuf []T, dst, stag int, rbuf []T, src, rtag int) (Status, error) {
	in, err := c.startRecv(ctx, "sendrecv", elementsOf(rbuf), src, rtag, 0)
	if err != nil {
		return Status{}, err
	}
	out, err := c.startSend(ctx, "sendrecv", elementsOf(sbuf), dst, stag, sendPlain)
	if err == nil {
		_, err = out.await(ctx)
	}
	if err != nil {
		over, cancel := context.WithCancel(ctx)
		cancel()
		_, _ = in.await(over) // cancels the receive; the first error is returned
		return Status{}, err
	}
	got, err := in.await(ctx)
	return got.Status, err
}
