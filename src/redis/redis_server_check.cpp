#include "redis/redis_server_check.hpp"

#include <optional>
#include <string>

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

namespace {

/// The value of `name:` in what INFO answered; nothing when it may not be read.
std::optional<std::string_view> info(const redisReply& reply, std::string_view name) {
  if (is_error(reply)) return std::nullopt;
  const std::string_view text = as_text(reply).value_or("");
  const std::string wanted = std::string(name) + ":";
  std::size_t at = text.find(wanted);
  while (at != std::string_view::npos && at != 0 && text[at - 1] != '\n')
    at = text.find(wanted, at + 1);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(at + wanted.size());
  return rest.substr(0, rest.find_first_of("\r\n"));
}

/// The value of the one setting that CONFIG GET was asked for.
std::optional<std::string_view> setting(const redisReply& reply) {
  if (is_error(reply) || reply.type != REDIS_REPLY_ARRAY || reply.elements < 2) return std::nullopt;
  return as_text(*reply.element[1]);
}

void report_persistence(const redisReply& persistence, const redisReply& save,
                        const redisReply& appendfsync, Observer& observer) {
  const std::optional<std::string_view> appends = info(persistence, "aof_enabled");
  if (!appends) {
    observer.on_hazard(
        "Redis: whether records survive a restart could not be checked (INFO is not allowed); make "
        "sure of 'appendonly yes'");
    return;
  }
  if (*appends == "1") {
    const std::optional<std::string_view> flush = setting(appendfsync);
    if (!flush) {
      observer.on_hazard(
          "Redis: when the append-only file is flushed could not be checked (CONFIG GET is not "
          "allowed); with anything but 'appendfsync always' a crash may lose the last records");
    } else if (*flush != "always") {
      observer.on_hazard(
          "Redis: the append-only file is not flushed at every write, so a crash of the server's "
          "machine may lose the last records and their operations then run again; set 'appendfsync "
          "always' where that must not happen");
    }
    return;
  }
  const std::optional<std::string_view> snapshots = setting(save);
  if (snapshots && snapshots->empty()) {
    observer.on_hazard(
        "Redis: nothing is persisted, so a restart loses every record and their operations run "
        "again; set 'appendonly yes'");
  } else {
    observer.on_hazard(
        "Redis: only snapshots are persisted, if any, so a restart loses the records since the "
        "last "
        "one and their operations run again; set 'appendonly yes'");
  }
}

}  // namespace

void report_hazards(Connection& connection, Observer& observer) {
  Commands commands;
  commands.add({"INFO", "memory"});
  commands.add({"INFO", "persistence"});
  commands.add({"CONFIG", "GET", "save"});
  commands.add({"CONFIG", "GET", "appendfsync"});
  const std::vector<ReplyPtr> replies = connection.exchange(commands);

  const std::optional<std::string_view> policy = info(*replies[0], "maxmemory_policy");
  if (!policy) {
    observer.on_hazard(
        "Redis: whether the server may evict records could not be checked (INFO is not allowed); "
        "make sure of 'maxmemory-policy noeviction'");
  } else if (*policy != "noeviction") {
    observer.on_hazard(
        "Redis: the server may evict records when it runs out of memory, and their operations then "
        "run again; set 'maxmemory-policy noeviction'");
  }
  report_persistence(*replies[1], *replies[2], *replies[3], observer);
  if (connection.role() != "master") {
    observer.on_hazard(
        "Redis: the server is a replica, which refuses writes and may lag; connect to the primary");
  }
}

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
