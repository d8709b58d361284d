package queue

import (
	"slices"
	"strconv"
)

// fieldShape is a list of fields that tasks of a batch have in common, names and most
// values: these are sent once and not with every task. It leaves out the ID, which
// every entry has first.
type fieldShape struct {
	fields []string // of the first task that has it: name, value, ...
	differ []int    // fields whose values differ from task to task; 1: the first after the ID
}

// shapesOf finds the shapes of these tasks, and, where there are several, that of
// each task.
func shapesOf(fields [][]string, at []int) (all []fieldShape, of []int) {
	all = append(make([]fieldShape, 0, 1), fieldShape{fields: fields[at[0]]})
	for j, i := range at[1:] {
		s := 0
		for s < len(all) && !sameNames(all[s].fields, fields[i]) {
			s++
		}
		if s > 0 && of == nil {
			of = make([]int, 1+j, len(at))
		}
		if s == len(all) {
			all = append(all, fieldShape{fields: fields[i]})
		}
		if of != nil {
			of = append(of, s)
		}
		all[s].compare(fields[i])
	}
	return all, of
}

func sameNames(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := 2; i < len(a); i += 2 {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// compare notes where the values of another task with this shape differ. Payloads
// are not looked into.
func (s *fieldShape) compare(fields []string) {
	next := 0 // in differ, which is in order
	for f := 1; f < len(fields)/2; f++ {
		if next < len(s.differ) && s.differ[next] == f {
			next++
			continue
		}
		if s.fields[2*f] == fieldPayload || s.fields[2*f+1] != fields[2*f+1] {
			s.differ = slices.Insert(s.differ, next, f)
			next++
		}
	}
}

func (s *fieldShape) count() int { return len(s.fields)/2 - 1 }

// add adds what the tasks of the shape have in common.
func (s *fieldShape) add(c *call) {
	c.text(strconv.Itoa(s.count()))
	c.text(strconv.Itoa(len(s.differ)))
	for f := 2; f < len(s.fields); f++ {
		if f%2 == 1 && slices.Contains(s.differ, f/2) {
			c.text("")
		} else {
			c.args = append(c.args, &s.fields[f])
		}
	}
	for _, f := range s.differ {
		c.text(strconv.Itoa(f))
	}
}

// values adds what is a task's own.
func (s *fieldShape) values(c *call, fields []string) {
	for _, f := range s.differ {
		c.args = append(c.args, &fields[2*f+1])
	}
}

// namesTwice reports whether two of these tasks have the same ID.
func namesTwice(tasks []Task, at []int) bool {
	if len(at) == 1 {
		return false
	}
	seen := make(map[TaskID]struct{}, len(at))
	for _, i := range at {
		seen[tasks[i].ID] = struct{}{}
	}
	return len(seen) < len(at)
}
