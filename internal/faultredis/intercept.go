package faultredis

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// DialHook is part of redis.Hook.
func (h *Hook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if i := h.takeDial(); i != nil {
			i.arrived()
			return nil, i.fault.err
		}
		return next(ctx, network, addr)
	}
}

// ProcessHook is part of redis.Hook.
func (h *Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		i, _ := h.take([]redis.Cmder{cmd})
		if i == nil {
			return next(ctx, cmd)
		}
		switch i.fault.do {
		case loseReply:
			// Sent as a copy: a caller that looks at the value despite the
			// error must not find the reply that it never got.
			if err := next(ctx, cmd.Clone()); fromNetwork(err) {
				return err
			}
		case holdBefore:
			if err := i.hold(ctx); err != nil {
				return err
			}
			return next(ctx, cmd)
		case holdAfter:
			err := next(ctx, cmd)
			if fromNetwork(err) {
				return err
			}
			if late := i.hold(ctx); late != nil {
				return late
			}
			return err
		}
		i.arrived()
		return i.fault.err
	}
}

// ProcessPipelineHook is part of redis.Hook.
func (h *Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		i, at := h.take(cmds)
		if i == nil {
			return next(ctx, cmds)
		}
		switch i.fault.do {
		case loseReply:
			sent := append([]redis.Cmder(nil), cmds...)
			for n := at; n < len(sent); n++ {
				sent[n] = sent[n].Clone()
			}
			if err := next(ctx, sent); fromNetwork(err) {
				return failAll(cmds, err)
			}
			i.arrived()
			return failAll(cmds[at:], i.fault.err)
		case replyError:
			return i.refuse(ctx, cmds, next)
		case holdBefore:
			if err := i.hold(ctx); err != nil {
				return failAll(cmds, err)
			}
			return next(ctx, cmds)
		case holdAfter:
			err := next(ctx, cmds)
			if fromNetwork(err) {
				return err
			}
			if late := i.hold(ctx); late != nil {
				return failAll(cmds, late)
			}
			return err
		}
		i.arrived()
		return failAll(cmds, i.fault.err)
	}
}

// refuse answers the matching commands of a pipeline with the fault's error
// and sends the rest. A transaction falls as a whole, as it does on a server
// that refuses to queue one of its commands.
func (i *Injected) refuse(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	i.arrived()
	if cmds[0].Name() == "multi" {
		return failAll(cmds, i.fault.err)
	}
	var rest []redis.Cmder
	for _, cmd := range cmds {
		if i.fault.concerns(cmd) {
			cmd.SetErr(i.fault.err)
		} else {
			rest = append(rest, cmd)
		}
	}
	if len(rest) > 0 {
		if err := next(ctx, rest); fromNetwork(err) {
			return err
		}
	}
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

func failAll(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// fromNetwork reports whether err is a failure of the way to the server, as
// opposed to an answer.
func fromNetwork(err error) bool {
	var reply redis.Error
	return err != nil && !errors.As(err, &reply)
}
