package redislease_test

import (
	"os"
	"testing"

	"github.com/claimq/claimq/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
