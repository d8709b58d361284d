package outbox

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/claimq/claimq/queue"
)

// DefaultSchema holds the tables where no other schema is named.
const DefaultSchema = "claimq"

// channel is the one on which those who add rows wake relays. It says which
// outbox and which queue; the rows alone say what there is to do.
const channel = "claimq_outbox"

// The statements. {{schema}} stands for the schema, {{row}} for the columns
// that a row keeps wherever it is.
const (
	row = `id, queue, task_id, kind, payload, content_type, headers, delay_ms, due, deadline, created_at`

	// task is a row as a relay reads it. A delay counts from when the row was
	// written, by this server's clock alone.
	task = `id, task_id, kind, payload, content_type, headers,
greatest(0, delay_ms - (extract(epoch from clock_timestamp() - created_at) * 1000)::bigint), due, deadline`

	// sqlInsert is followed by the values, and by wake where relays are woken.
	sqlInsert = `insert into {{schema}}.outbox
(queue, task_id, kind, payload, content_type, headers, delay_ms, due, deadline) values `

	// sqlBegin bounds how long a relay that is frozen or cut off keeps its rows,
	// and lets a resend wait for those that are being sent.
	sqlBegin = `select set_config('idle_in_transaction_session_timeout', $1, true), pg_advisory_xact_lock_shared($2)`

	// sqlTake asks for what exists, not for what is above the last number seen:
	// a transaction that commits late has a lower one.
	sqlTake = `select ` + task + ` from {{schema}}.outbox where queue = $1
order by id limit $2 for update skip locked`

	sqlSent = `with gone as (delete from {{schema}}.outbox where id = any($1) returning {{row}})
insert into {{schema}}.outbox_sent ({{row}}) select {{row}} from gone`

	sqlDelete = `delete from {{schema}}.outbox where id = any($1)`

	sqlRefused = `with gone as (delete from {{schema}}.outbox where id = any($1) returning {{row}})
insert into {{schema}}.outbox_refused ({{row}}, error)
select {{row}}, said.error from gone join unnest($1::bigint[], $2::text[]) said(id, error) using (id)`

	sqlRetry = `with gone as (delete from {{schema}}.outbox_refused where queue = $1 returning {{row}})
insert into {{schema}}.outbox ({{row}}) overriding system value select {{row}} from gone`

	sqlForget = `delete from {{schema}}.outbox_sent s using (
    select queue, sent_at, id from {{schema}}.outbox_sent
    where queue = $1 and sent_at < clock_timestamp() - $2::interval
    order by sent_at, id limit $3 for update skip locked
) old where s.queue = old.queue and s.sent_at = old.sent_at and s.id = old.id`

	// sqlSettled waits until no relay has rows of the queue in hand that it took
	// before, and says when that was.
	sqlSettled = `select pg_advisory_xact_lock($1)`
	sqlWindow  = `select clock_timestamp() - $1::interval, clock_timestamp()`

	sqlPage = `select ` + task + `, sent_at from {{schema}}.outbox_sent
where queue = $1 and (sent_at, id) > ($2, $3) and sent_at <= $4
order by sent_at, id limit $5`

	// sqlStats hops from queue to queue along the index.
	sqlStats = `with recursive known(queue) as (
    (select least((select min(queue) from {{schema}}.outbox), (select min(queue) from {{schema}}.outbox_refused)))
    union all
    select least((select min(o.queue) from {{schema}}.outbox o where o.queue > k.queue),
                 (select min(r.queue) from {{schema}}.outbox_refused r where r.queue > k.queue))
    from known k where k.queue is not null
)
select k.queue,
    (select count(*) from (select from {{schema}}.outbox o where o.queue = k.queue limit $1) u),
    (select count(*) from (select from {{schema}}.outbox_refused r where r.queue = k.queue limit $1) u),
    coalesce((select greatest(0, extract(epoch from clock_timestamp() - o.created_at))
        from {{schema}}.outbox o where o.queue = k.queue order by o.id limit 1), 0)::float8
from known k where k.queue is not null limit $2`
)

// schema is the name of a checked one.
type schema string

func (s schema) sql(text string) string {
	return strings.NewReplacer("{{schema}}", string(s), "{{row}}", row).Replace(text)
}

var validSchema = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// wake is the end of an insert that wakes the relays of a queue. It names no
// column: whoever adds need not be allowed to read.
func (s schema) wake(queueName string) string {
	return " returning pg_notify('" + channel + "', '" + s.wakes(queueName) + "')"
}

// wakes is what a wake says.
func (s schema) wakes(queueName string) string { return string(s) + "/" + queueName }

// schemaNamed checks a name that is put into statements as it is.
func schemaNamed(name string) (schema, error) {
	if name == "" {
		name = DefaultSchema
	}
	if !validSchema.MatchString(name) {
		return "", badConfig("Schema", "use 1 to 63 lower case letters, digits or '_', no digit first, got %q", name)
	}
	return schema(name), nil
}

func badConfig(field, remedy string, args ...any) error {
	return &queue.FieldError{Field: field, Remedy: fmt.Sprintf(remedy, args...), Kind: queue.ErrInvalidConfig}
}

var validQueue = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
