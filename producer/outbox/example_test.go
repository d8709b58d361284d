package outbox_test

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/claimq/claimq/producer/outbox"
	"github.com/claimq/claimq/queue"
)

// The invoice and the task that sends it come about together.
func Example() {
	bill := func(ctx context.Context, pool *pgxpool.Pool, number int) error {
		box, err := outbox.New(outbox.Config{Queue: "invoices"}) // once, at the start
		if err != nil {
			return err
		}
		task, err := queue.NewTask("invoice.send", map[string]int{"number": number})
		if err != nil {
			return err
		}
		task.ID = "invoice-4821-send" // from the business action
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into invoices (number) values ($1)", number); err != nil {
				return err
			}
			return box.Add(ctx, tx, task)
		})
	}
	_ = bill
}

// A relay in a program of one's own, instead of `producer relay`.
func ExampleRelay_Run() {
	relay := func(ctx context.Context, pool *pgxpool.Pool, rdb *redis.Client) error {
		q, err := queue.New(queue.Config{Name: "invoices", Client: rdb})
		if err != nil {
			return err
		}
		r, err := outbox.NewRelay(pool, q, outbox.RelayConfig{})
		if err != nil {
			return errors.Join(err, q.Close())
		}
		return errors.Join(r.Run(ctx), q.Close()) // until ctx ends
	}
	_ = relay
}
