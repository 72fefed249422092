#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "idempotency/observer.hpp"
#include "idempotency/store.hpp"
#include "idempotency/stores/redis_script.hpp"

namespace idempotency {
inline namespace v0 {

/// Whether the connection to the server is encrypted.
enum class RedisEncryption : std::uint8_t {
  off,
  tls,  ///< TLS 1.2 or newer; the server's certificate and the name in it are always checked
};

/// What an encrypted connection trusts and shows: names of PEM files, read for each new connection.
struct RedisTls {
  /// The authorities that are trusted. Empty: those of the system.
  std::string ca_file = {};
  /// Our own certificate, with those between it and its authority, for servers that ask for one.
  std::string certificate_file = {};
  /// Its key, without a passphrase.
  std::string key_file = {};
  /// Whom the server's certificate is for. Empty: the host.
  std::string server_name = {};
};

/// How a `RedisStore` is set up.
struct RedisOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 6379;
  /// A socket file, in the place of host and port.
  std::string unix_socket = {};
  /// Empty with a password: the user "default".
  std::string username = {};
  std::string password = {};
  std::uint32_t database = 0;
  /// Begins every key: `prefix:{type:value}`. 1 to 64 letters, digits, '_', '-', '.', '/' and ':'.
  std::string prefix = "idempotency";
  /// How long connecting may take, and encrypting the connection.
  std::chrono::milliseconds connect_timeout{2'000};
  /// How long one request may take, from its first byte sent to the last of its answer.
  std::chrono::milliseconds command_timeout{2'000};
  /// How long a call waits for a connection when all are in use; then `Errc::store_busy`.
  std::chrono::milliseconds pool_wait{2'000};
  /// Opened when needed, at most.
  std::size_t max_connections = 16;
  RedisEncryption encryption = RedisEncryption::off;
  RedisTls tls = {};
  /// Hears of hazards in the server's set-up, of failed releases and of settlements. May be null.
  Observer* observer = nullptr;

  /// Options from `redis://[user[:password]@]host[:port][/database]`, the same with `rediss://`
  /// (TLS), or `unix://[user[:password]@]/path[?db=database]`. User, password and path may be
  /// percent-encoded; `redis://:password@host` has a password only; an IPv6 address stands in
  /// brackets.
  ///
  /// Errors: `Errc::invalid_argument` for another form.
  [[nodiscard]] static RedisOptions from_address(std::string_view address);
};

namespace detail::redis {
class StoreImpl;
}  // namespace detail::redis

/// Records in one Redis server (6.0 or newer; Valkey has the same commands, but is not tried by the
/// tests), each a packed string that Redis itself removes at the end of its retention;
/// `docs/redis.md` describes it byte by byte.
///
/// A first run costs two commands in two round trips, a duplicate of a finished one a single native
/// command (before Redis 7.0 a script). Whoever meets another's unfinished record sends one script
/// more. Leases are judged by the server's clock.
///
/// The promises hold while the server keeps what it acknowledged: without persistence, with
/// eviction, or after a fail-over to a replica that lagged, records may be gone and their
/// operations run again. The store tells the observer of such a set-up when it is made.
///
/// `find` and `list` give only the first 4 bytes of a succeeded record's owner, the rest zero: no
/// more is kept. A fence counts to 2^53. Retentions and leases longer than 1000 years count as 1000
/// years and as without a deadline. `Completed::retention_remaining` is reckoned from the server's
/// clock as last heard (at most a minute ago) and errs on the short side: by a 128th of the
/// retention, or 64 ms. `list` and `statistics` scan the whole database, `list` once for each 10,000
/// records that it passes; `purge` has nothing to do and answers 0.
///
/// Errors: those of `Store`; when made, `Errc::invalid_argument` for unusable options and
/// `Errc::store_refused` for a server that refuses the credentials, is too old or shows a certificate
/// that is not trusted, and for files of `RedisTls` that cannot be used. A server that is not there
/// or still loading is no error then: calls answer `Errc::store_unavailable` or `Errc::store_busy`
/// until it is.
/// Thread safety: all members may be called concurrently.
/// Lifetime: in the child of a `fork()` every call throws `Errc::used_after_fork`; open a store of
/// the child's own.
class RedisStore {
 public:
  explicit RedisStore(RedisOptions options);
  template <detail::TextLike Address>
  explicit RedisStore(const Address& address)
      : RedisStore(RedisOptions::from_address(detail::text_of(address))) {}
  RedisStore(const RedisStore&) = delete;
  RedisStore& operator=(const RedisStore&) = delete;
  ~RedisStore();

  [[nodiscard]] BeginOutcome begin(const BeginRequest& request);
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests);
  [[nodiscard]] WriteOutcome issue(const IssueRequest& request);
  [[nodiscard]] WriteOutcome complete(const Key& key, const Ownership& by,
                                      const Completion& completion);
  [[nodiscard]] WriteOutcome fail(const Key& key, const Ownership& by, const Failure& failure,
                                  std::chrono::milliseconds retention);
  [[nodiscard]] WriteOutcome doubt(const Key& key, const Ownership& by);
  [[nodiscard]] WriteOutcome mark_effect(const Key& key, const Ownership& by);
  [[nodiscard]] WriteOutcome renew(const Key& key, const Ownership& by,
                                   std::chrono::milliseconds lease);
  [[nodiscard]] ReleaseOutcome release(const Key& key, const Ownership& by,
                                       std::chrono::milliseconds retention) noexcept;
  [[nodiscard]] std::optional<Record> find(const Key& key);

  [[nodiscard]] RecordPage list(const RecordFilter& filter, const std::string& cursor,
                                std::size_t limit);
  [[nodiscard]] WriteOutcome resolve(const Record& seen, const Resolution& resolution);
  /// Always 0: Redis removes what is past its retention.
  std::size_t purge(std::size_t limit);
  /// `bytes` is what Redis says that the records' keys and values take.
  [[nodiscard]] StoreStatistics statistics();

  /// Sent together, 256 at a time, and answered together.
  ///
  /// Errors: the first that a row met, when all others have been tried; `Errc::store_reply_lost` in
  /// its place when any of them was renewed.
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals);

  /// Runs a script of one's own on this store's connections; `keys` are whole names, as `name_for` gives them.
  ///
  /// Errors: those of `Store`; `Errc::invalid_argument` for a `replica_wait` shorter than 1 ms.
  /// Example: `store.run_script(script, {store.name_for(key, "visits")}, {"1"}).integer()`
  RedisReply run_script(const RedisScript& script, const RedisWords& keys,
                        const RedisWords& arguments, const RedisScriptOptions& options = {});
  /// `prefix:{type:value}:part`.
  ///
  /// Errors: `Errc::invalid_argument` for a part that is no 1 to 64 letters, digits, '_' and '-'.
  [[nodiscard]] std::string name_for(const Key& key, std::string_view part) const;

 private:
  std::unique_ptr<detail::redis::StoreImpl> impl_;
};
static_assert(Store<RedisStore>);
static_assert(IssuingStore<RedisStore>);
static_assert(AdminStore<RedisStore>);
static_assert(BatchStore<RedisStore>);
static_assert(BatchBeginStore<RedisStore>);
static_assert(ScriptStore<RedisStore>);

}  // namespace v0
}  // namespace idempotency
