// Package ahead has no code. Its test kills, freezes and drains real worker
// processes whose handlers take no time, so that tasks wait in them on record as
// started, and looks at every run of every task.
package ahead
