package postgres

// Statements are those that run for every task, by name.
func (s *Store) Statements() map[string]string {
	list := map[string]string{
		"note": sqlNote, "claim": sqlClaim, "refusals": sqlRefusals, "results": sqlResults, "look": sqlLook, "mine": sqlMine,
		"hold": sqlHold, "completed": sqlCompleted, "forget": sqlForget, "forget steps": sqlForgetSteps,
		"lock step": sqlLockStep, "count steps": sqlCountSteps, "put intent": sqlPutIntent, "lock task": sqlLockTask,
		"put result": sqlPutResult, "step": sqlStep, "steps": sqlSteps,
		"sweep tasks": sqlSweepTasks, "sweep steps": sqlSweepSteps,
	}
	for name, text := range list {
		list[name] = s.sql(text)
	}
	return list
}

// MigrateLock is the advisory lock of the one who migrates.
func (s *Store) MigrateLock() int64 { return tables().Lock(s.cfg.Schema) }

// SweepLock is the advisory lock of the one who sweeps.
func (s *Store) SweepLock() int64 { return lockNumber("sweep", s.cfg.Schema) }
