// Package ranks is the bottom of the core: the containers in which its rooms keep what
// ranks have open. Table holds requests and their states under ids that are never used
// for another one, FIFO holds what waits in order, and FairQueue lets the ranks take
// turns with work that is longer than one step. Nothing here knows a protocol; the rooms
// above own what is in the containers.
package ranks
