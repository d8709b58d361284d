//go:build !unix

package demo

import "os"

// There are no signals here that freeze a process and wake it.
var sigStop, sigCont os.Signal
