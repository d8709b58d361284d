package postgres

// The statements. {{schema}} stands for the schema. Where $1 and $2 are arrays
// they have one element for each lease of a batch, and many rows are written in
// the order of the key, so that two batches never wait for each other in a
// circle.
const (
	// note puts the fences of leases on record.
	sqlNote = `
insert into {{schema}}.tasks as t (queue, task_id, fence, touched_at)
select q, i, f, now() from unnest($1::text[], $2::text[], $3::bigint[]) as u(q, i, f) order by q, i
on conflict (queue, task_id) do update set fence = excluded.fence, touched_at = excluded.touched_at
where t.done_at is null and t.fence < excluded.fence`

	// claim marks tasks as done, for as long as the transaction does not end
	// otherwise, and returns those for which that is new.
	sqlClaim = `
insert into {{schema}}.tasks as t (queue, task_id, fence, token, done_at, touched_at)
select q, i, f, $4, now(), now() from unnest($1::text[], $2::text[], $3::bigint[]) as u(q, i, f) order by q, i
on conflict (queue, task_id) do update
set fence = excluded.fence, token = excluded.token, done_at = excluded.done_at, touched_at = excluded.touched_at
where t.done_at is null and t.fence <= excluded.fence
returning t.queue, t.task_id`

	// refusals says why a task was not claimed.
	sqlRefusals = `
select t.queue, t.task_id, t.fence, t.done_at is not null, t.result
from unnest($1::text[], $2::text[]) as u(q, i)
join {{schema}}.tasks t on t.queue = u.q and t.task_id = u.i`

	sqlResults = `
update {{schema}}.tasks t set result = u.r
from unnest($1::text[], $2::text[], $3::bytea[]) as u(q, i, r)
where t.queue = u.q and t.task_id = u.i`

	// look waits for whoever has the row of a task in an open transaction, and
	// changes nothing that stays.
	sqlLook = `
insert into {{schema}}.tasks as t (queue, task_id, fence, touched_at) values ($1, $2, 0, now())
on conflict (queue, task_id) do update set fence = t.fence where false`

	sqlMine = `
select done_at is not null from {{schema}}.tasks where queue = $1 and task_id = $2 and token = $3`

	sqlHold = `
insert into {{schema}}.tasks as t (queue, task_id, fence, touched_at) values ($1, $2, $3, now())
on conflict (queue, task_id) do update set fence = excluded.fence, touched_at = excluded.touched_at
where t.fence <= excluded.fence`

	sqlCompleted = `
select task_id, fence, done_at, result from {{schema}}.tasks
where queue = $1 and task_id = any($2::text[]) and done_at is not null`

	sqlForgetSteps = `delete from {{schema}}.steps where queue = $1 and task_id = $2`

	sqlForget = `
insert into {{schema}}.tasks as t (queue, task_id, fence, touched_at) values ($1, $2, $3, now())
on conflict (queue, task_id) do update
set fence = greatest(t.fence, excluded.fence), done_at = null, token = null, result = null, touched_at = excluded.touched_at`

	sqlLockStep = `
select key, state, fence, calls, changed_at, result, call, before
from {{schema}}.steps where queue = $1 and task_id = $2 and name = $3 for update`

	sqlCountSteps = `select count(*) from {{schema}}.steps where queue = $1 and task_id = $2`

	sqlPutIntent = `
insert into {{schema}}.steps (queue, task_id, name, number, key, state, fence, calls, call, before, changed_at)
values ($1, $2, $3, $4, $5, 'sent', $6, 1, $7, $8, now())
on conflict (queue, task_id, name) do update
set key = excluded.key, state = 'sent', fence = excluded.fence, calls = steps.calls + 1,
    call = excluded.call, before = excluded.before, changed_at = excluded.changed_at`

	sqlLockTask = `select fence from {{schema}}.tasks where queue = $1 and task_id = $2 for update`

	sqlPutResult = `
update {{schema}}.steps set state = $4, result = $5, changed_at = now()
where queue = $1 and task_id = $2 and name = $3 and state <> 'done'`

	sqlStep = `
select key, state, fence, calls, changed_at, result, call, before
from {{schema}}.steps where queue = $1 and task_id = $2 and name = $3`

	sqlSteps = `
select name, key, state, fence, calls, changed_at, result
from {{schema}}.steps where queue = $1 and task_id = $2 order by number`

	sqlSweepLock = `select pg_try_advisory_xact_lock($1)`

	sqlSweepTasks = `
with old as (
    select queue, task_id, touched_at from {{schema}}.tasks
    where touched_at < now() - $1::interval and touched_at >= $2 order by touched_at limit $3 for update skip locked
), gone as (
    delete from {{schema}}.tasks t using old where t.queue = old.queue and t.task_id = old.task_id
    returning old.touched_at
)
select count(*), max(touched_at) from gone`

	sqlSweepSteps = `
with old as (
    select queue, task_id, name, changed_at from {{schema}}.steps
    where changed_at < now() - $1::interval and changed_at >= $2 order by changed_at limit $3 for update skip locked
), gone as (
    delete from {{schema}}.steps t using old where t.queue = old.queue and t.task_id = old.task_id and t.name = old.name
    returning old.changed_at
)
select count(*), max(changed_at) from gone`
)
