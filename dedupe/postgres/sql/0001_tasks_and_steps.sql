-- One row for each task that a lease was used for here: the greatest fence seen
-- and, once done, what the transaction that had the effect left.
create table {{schema}}.tasks (
    queue      text collate "C" not null,
    task_id    text collate "C" not null,
    fence      bigint not null,
    done_at    timestamptz,
    token      text,  -- of the attempt that did it
    result     bytea,
    touched_at timestamptz not null,
    primary key (queue, task_id)
);
create index tasks_touched_at on {{schema}}.tasks (touched_at);

-- Calls to the outside: intent before, result after.
create table {{schema}}.steps (
    queue      text collate "C" not null,
    task_id    text collate "C" not null,
    name       text collate "C" not null,
    number     smallint not null,  -- order of first intents
    key        text not null,
    state      text not null check (state in ('pending', 'sent', 'done')),
    fence      bigint not null,    -- of the last intent
    calls      integer not null,
    call       text not null,      -- name of the last intent
    before     text not null,      -- state before it; empty: none
    result     bytea,
    changed_at timestamptz not null,
    primary key (queue, task_id, name)
);
create index steps_changed_at on {{schema}}.steps (changed_at);
