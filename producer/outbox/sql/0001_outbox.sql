-- What transactions have written and no relay has sent yet. Any program may
-- insert rows; the constraints refuse what the queue would refuse.
create table {{schema}}.outbox (
    id           bigint generated always as identity primary key,
    queue        text collate "C" not null check (queue ~ '^[A-Za-z0-9._-]{1,64}$'),
    task_id      text collate "C" not null check (task_id ~ '^[!-~]{1,200}$'),
    kind         text collate "C" not null check (kind ~ '^[!-~]{1,100}$'),
    payload      bytea not null default '' check (octet_length(payload) <= 67108864),
    content_type text not null default '',
    headers      json check (json_typeof(headers) = 'object'),
    delay_ms     bigint not null default 0 check (delay_ms between 0 and 9000000000000),
    due          timestamptz check (isfinite(due)),
    deadline     timestamptz check (isfinite(deadline)),
    created_at   timestamptz not null default clock_timestamp() check (isfinite(created_at)),
    check (delay_ms = 0 or due is null)
);
create index outbox_order on {{schema}}.outbox (queue, id);

-- What the queue has accepted, for as long as it may have to be sent again.
create table {{schema}}.outbox_sent (
    id           bigint not null,
    queue        text collate "C" not null,
    task_id      text collate "C" not null,
    kind         text collate "C" not null,
    payload      bytea not null,
    content_type text not null,
    headers      json,
    delay_ms     bigint not null,
    due          timestamptz,
    deadline     timestamptz,
    created_at   timestamptz not null,
    sent_at      timestamptz not null default clock_timestamp(),
    primary key (queue, sent_at, id)
);

-- What the queue can never accept as it is, with the reason.
create table {{schema}}.outbox_refused (
    id           bigint primary key,
    queue        text collate "C" not null,
    task_id      text collate "C" not null,
    kind         text collate "C" not null,
    payload      bytea not null,
    content_type text not null,
    headers      json,
    delay_ms     bigint not null,
    due          timestamptz,
    deadline     timestamptz,
    created_at   timestamptz not null,
    error        text not null,
    refused_at   timestamptz not null default clock_timestamp()
);
create index outbox_refused_queue on {{schema}}.outbox_refused (queue);
