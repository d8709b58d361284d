package queue

import "context"

// quarantine moves entries that are no task to the dead letters.
func (q *Queue) quarantine(ctx context.Context, r BeginRequest, bad []int, reasons map[int]string, b *Batch) error {
	entries := r.Entries
	for _, g := range byPartition(len(bad), func(i int) int { return entries[bad[i]].Partition }) {
		n := len(g.index)
		c := q.newCall(scriptQuarantine, g.partition, 3+3*n).add(Group, r.Consumer, n)
		c.expect(3 * n)
		for _, i := range g.index {
			c.text(string(entries[bad[i]].ID))
		}
		for _, i := range g.index {
			c.text(string(entries[bad[i]].name()))
		}
		for _, i := range g.index {
			c.text(reasons[bad[i]])
		}
		q.run(ctx, c)
		if c.err != nil {
			return c.err
		}
		missed := map[int]bool{}
		for _, x := range asList(c.reply) {
			missed[int(asInt(x))-1] = true
		}
		for j, i := range g.index {
			if e := entries[bad[i]]; !missed[j] {
				b.Buried = append(b.Buried, Copy{e.name(), e.ID, reasons[bad[i]]})
			}
		}
	}
	return nil
}
