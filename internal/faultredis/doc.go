// Package faultredis breaks the way between a real go-redis client and its
// server on purpose.
//
// Every failure has two versions, and most bugs of a queue live in the second:
// the command was not applied, or it was applied and the reply was lost. Hook
// makes either of them, one command at a time and exactly when asked for:
//
//	hook := faultredis.New(client)
//	lost := hook.Inject(faultredis.LoseReply(faultredis.Script(src)).Once())
//
// Hook works above the client's own retries, so each fault is seen by the
// caller. Proxy works below the client, on TCP connections: for what only a
// real connection shows, such as a pool that has to reconnect or a request
// that is applied long after its sender gave up.
package faultredis
