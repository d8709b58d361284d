// Package quorum keeps leases on a majority of independent Redis servers, with
// the Redlock algorithm of package redsync. It goes on while a minority of them
// is away or has lost its memory.
//
//	store, err := quorum.New(quorum.Config{Clients: []*redis.Client{a, b, c}})
//	locker, err := lease.New(store, lease.Config{})
//
// # What it promises
//
// A lease is held on a majority of the servers at once, so no two holders are
// granted one at the same time while these hold together:
//
//   - The servers are independent: not replicas of one another, not on one
//     machine. Three or five, and the same set for everybody.
//   - The clocks of servers and holders run at the same speed, to one percent,
//     and are not stepped. There is no common clock that decides.
//   - A server that has lost its memory stays away for the longest lease length
//     before it comes back; otherwise it may grant again what a majority has
//     granted with its help. Let a supervisor wait, or have the log flushed at
//     each write (appendfsync always).
//   - The holder goes by its context. One that is paused after it last looked may
//     act when somebody else has the lease.
//
// # What it does not
//
// There is no fence: servers that know nothing of one another have no common
// counter, so leases have the fence 0 and what you write to cannot tell a late
// holder from its successor. If being late costs money, use a store with a
// fence, or have the effect guarded by the data itself.
//
// Holders that ask at the same time may each get a part of the servers and so
// none the lease; they are answered lease.ErrHeld and ask again after a random
// pause. ErrHeld therefore does not prove that there is a holder.
//
// A release whose reply was lost cannot be asked again: the second answer would
// be lease.ErrLost. What is left of it on a server ends with the lease length.
//
// # Keys
//
// On each server one string with an expiry, <prefix>:{lease.<name>}:quorum. Its
// value is the token.
//
// The package starts no goroutines of its own; redsync asks the servers in
// parallel, and each call waits for all of them, for a fifth of the lease length
// at most.
package quorum
