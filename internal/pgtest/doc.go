// Package pgtest gives tests a real PostgreSQL server.
//
// Most tests take the one server that a test binary shares, and a fresh
// database each:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//
//	func TestX(t *testing.T) {
//		pool := pgtest.Shared(t).Pool(t)
//		…
//	}
//
// A test that kills or restarts the server starts its own with Start.
//
// The server runs from the system's binaries, as the user nobody where the
// test is root (PostgreSQL refuses to run as root), in a temporary directory
// and on a free loopback port. It does not wait for the disk, but it does hand
// each commit to the operating system: what a killed server has committed is
// there when it is started again.
//
// A missing server fails the test and names the remedy. It is never a skip.
//
// Each server has one goroutine, which ends with the process.
package pgtest
