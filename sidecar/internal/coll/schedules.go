package coll

// Schedules is the number of the schedules of this build: of what NewPlan and Choose return. Each
// sidecar plans the part of its own ranks in a collective, so that two of them with other schedules
// wait for each other in vain or combine the wrong bytes. They tell each other this number
// (api/wire/PROTOCOL.md §5.1). It is raised by each change of a schedule or a choice, with
// another hash of the plans (TestSchedules), and 0 stands for releases that tell none.
const Schedules = 2
