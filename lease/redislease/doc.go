// Package redislease keeps leases on one Redis server.
//
//	store, err := redislease.New(redislease.Config{Client: rdb})
//	locker, err := lease.New(store, lease.Config{})
//
// # What it promises
//
// By the server's clock at most one token holds a name at any moment, and each
// lease has a greater fence than all before it. Every change is one script that
// compares the token. A holder that dies keeps others waiting for what is left
// of its lease, and one that is paused or cut off is replaced then: it stops
// being trusted before, by its own clocks, and what it asks for later is
// refused.
//
// # What it does not
//
// The server is the memory. What it acknowledged and forgot (a failover, a
// restart without the last second of its log, an older snapshot, an eviction, a
// key removed by hand) may give a name to a second holder while the first still
// trusts its lease, until that one's next renewal: a third of the length. A
// clock of the server that is stepped forward ends leases early; one that is
// stepped back lets them last for a length from when the next one asks. The
// fence grows even then, unless key and clock were both lost: let what you write
// to compare it.
//
// # Keys
//
// One hash for each name, <prefix>:{lease.<name>}:lease, in a slot of its own:
//
//	token     who holds it; none after a release
//	length    for how long it was asked, in milliseconds
//	ends      when it ends, in milliseconds of the server's clock
//	fence     the last fence
//	released  what the last releases were answered, so that one whose reply was
//	          lost may be asked again
//
// It expires Keep after its last lease ended. From then on the server's clock
// alone makes the fence grow. Removing the key by hand ends the lease.
//
// The package starts no goroutines, retries nothing and keeps no state.
package redislease
