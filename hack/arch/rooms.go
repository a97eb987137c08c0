package arch

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Kind is the kind of a package, which decides what the package may import.
type Kind string

// The kinds, from the lowest layer to the highest.
const (
	Contract Kind = "contract" // api: the bytes and names that both sides agree on
	Pure     Kind = "pure"     // rules without clock, goroutine, lock, I/O or unsafe
	Edge     Kind = "edge"     // code that uses the machine: links, sessions, files
	Engine   Kind = "engine"   // the engine's turn, which joins pure rules and edges
	Client   Kind = "client"   // the library inside the application
	Example  Kind = "example"  // programs that use the client library
	Command  Kind = "cmd"      // programs: wiring, flags, exit codes
	Tool     Kind = "tool"     // programs that only developers run: never shipped
	Test     Kind = "test"     // packages that only tests and tools import
)

// mayImport says which kinds of room a kind may import. Nothing imports a
// command or a tool, and nothing but tests and tools imports a test room.
var mayImport = map[Kind][]Kind{
	Contract: {Contract},
	Pure:     {Contract, Pure},
	Edge:     {Contract, Pure, Edge},
	Engine:   {Contract, Pure, Edge, Engine},
	Client:   {Contract, Client},
	Example:  {Contract, Client, Example},
	Command:  {Contract, Pure, Edge, Engine, Client},
	Tool:     {Contract, Pure, Edge, Engine, Client, Test},
	Test:     {Contract, Pure, Edge, Engine, Client, Test},
}

// Room is one line of rooms.txt. Dir is relative to the module's root. Inner are the rooms
// of the core that it may import, by their names below the core.
type Room struct {
	Dir   string
	Kind  Kind
	Inner []string
}

// roomsFile is the path of the list of packages, relative to the module's root.
const roomsFile = "hack/arch/rooms.txt"

// readRooms reads lines of the form "dir  kind  # what it is", of which those of the core
// have arrows, "dir  kind  > inner inner  # what it is". Every room must say what it is.
func readRooms(name string) ([]Room, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the list of rooms: %w", err)
	}
	defer f.Close()
	var rooms []Room
	lines := bufio.NewScanner(f)
	for number := 1; lines.Scan(); number++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		room, err := parseRoom(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", roomsFile, number, err)
		}
		if slices.ContainsFunc(rooms, func(r Room) bool { return r.Dir == room.Dir }) {
			return nil, fmt.Errorf("%s:%d: %s is listed twice; remove one line", roomsFile, number, room.Dir)
		}
		rooms = append(rooms, room)
	}
	return rooms, lines.Err()
}

func parseRoom(text string) (Room, error) {
	line, what, _ := strings.Cut(text, "#")
	line, arrows, _ := strings.Cut(line, ">")
	words := strings.Fields(line)
	if len(words) != 2 || strings.TrimSpace(what) == "" {
		return Room{}, fmt.Errorf("%q is not of the form: dir  kind  # what it is, nor: dir  kind  > inner  # what it is", text)
	}
	room := Room{Dir: words[0], Kind: Kind(words[1]), Inner: strings.Fields(arrows)}
	if _, known := mayImport[room.Kind]; !known {
		return Room{}, fmt.Errorf("%s has the unknown kind %q; the kinds are in hack/arch/rooms.go", room.Dir, room.Kind)
	}
	return room, nil
}
