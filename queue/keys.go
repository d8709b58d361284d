package queue

import (
	"hash/crc32"
	"strconv"
)

// Every key of a partition is <prefix>:{<queue>.<partition>}:<what>: one hash
// tag, so that one script may touch them all on a cluster.
//
//	stream      stream  waiting and pending entries       (public contract)
//	scheduled   stream  entries of tasks that are due later
//	dead        stream  dead letters                      (public contract)
//	tasks       hash    task ID -> record; never expires
//	due         zset    entry of scheduled and task ID, by due time
//	leases      zset    token by lease end
//	grants      hash    token -> the tasks it was granted
//	revoked     hash    token -> tasks of it that were deleted
//	counts      hash    task ID -> failures and interruptions, troubled tasks only
//	steps       hash    task ID -> recorded steps of an unfinished task
//	done1..3    hash    16-byte digest of a finished ID -> tags
//	kept1..3    hash    results and steps of finished tasks
//	fence       string  the last fence granted
//	consumers   zset    consumer name by last heartbeat
//	conf        hash    number of partitions, longest lease, turns and cursors
//	times       hash    kind -> how long its handlers ran; in partition 0 only
//	events      stream  what has happened to tasks, bounded; see Timeline
//	probe       any     scratch key of Probe, removed by it
type partitionKeys struct {
	base string
	args map[string]any    // keys of scripts as arguments, made once
	of   map[*script][]any // those of each script of the hot path, in its order
}

func keysOf(prefix, name string, p int) partitionKeys {
	k := partitionKeys{base: prefix + ":{" + name + "." + strconv.Itoa(p) + "}:", args: make(map[string]any, 20)}
	k.of = make(map[*script][]any, len(hotScripts))
	for _, s := range hotScripts {
		for _, what := range s.keys {
			if k.args[what] == nil {
				k.args[what] = k.key(what)
			}
			k.of[s] = append(k.of[s], k.args[what])
		}
	}
	return k
}

// hotScripts are those that run for every task.
var hotScripts = []*script{scriptEnqueue, scriptBegin, scriptStart, scriptRenew, scriptComplete, scriptRetry}

// appendKeys adds the keys of a script to its arguments.
func (k partitionKeys) appendKeys(args []any, s *script) []any {
	if keys, ok := k.of[s]; ok {
		return append(args, keys...)
	}
	for _, what := range s.keys {
		args = append(args, k.arg(what))
	}
	return args
}

// arg is a key as an argument.
func (k partitionKeys) arg(what string) any {
	if a, ok := k.args[what]; ok {
		return a
	}
	return k.key(what)
}

func (k partitionKeys) key(what string) string { return k.base + what }

// StreamKey returns the key of a partition's stream. Together with Group it is
// a public contract, for autoscalers and for producers in other languages.
func (q *Queue) StreamKey(partition int) string { return q.parts[partition].key("stream") }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// PartitionOf returns the partition of a task: CRC-32C(ID) mod P.
func (q *Queue) PartitionOf(id TaskID) int {
	if len(q.parts) == 1 {
		return 0
	}
	var b [MaxIDBytes]byte
	text := b[:min(len(b), len(id))]
	if copy(text, id) < len(id) {
		text = []byte(id)
	}
	return int(crc32.Checksum(text, castagnoli) % uint32(len(q.parts)))
}
