-- If the number of partitions was raised after an event was kept, it is published in another one.
grant update (partition) on outbox to headrace_publisher;
