package claimqtest_test

import (
	"os"
	"testing"

	"github.com/claimq/claimq/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
