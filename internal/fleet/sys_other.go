//go:build !linux

package fleet

import "syscall"

func sysProcAttr() *syscall.SysProcAttr { return nil }
