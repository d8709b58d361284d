package producer

import (
	"context"

	"github.com/claimq/claimq/queue"
)

// Send is what a Producer does to reach the server.
type Send func(ctx context.Context, token queue.Token, tasks []queue.Task) []queue.Receipt

// Intercept puts f between the producer and the queue.
func (p *Producer) Intercept(f func(next Send) Send) { p.send = f(p.send) }
