package redistest

import "syscall"

// sysProcAttr makes the server die with the test binary, also when that is
// killed or ends by the testing package's timeout, where no Cleanup runs.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
