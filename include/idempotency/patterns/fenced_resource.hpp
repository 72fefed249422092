#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/patterns/optimistic.hpp"
#include "idempotency/sql_transaction.hpp"
#include "idempotency/stores/redis_script.hpp"

namespace idempotency {
inline namespace v0 {

/// What became of a write that carries a fence.
enum class [[nodiscard]] FencedWrite : std::uint8_t{
    written = 1,  ///< the fence is the newest so far, and is kept with what was written
    refused,      ///< a newer fence has written: the lock is lost, stop; nothing was written
    missing,      ///< there is no such row
};

/// Where the rows and the newest fences are.
struct FencedSqlOptions {
  std::string table;  ///< may have a database in front: `shop.stock`
  std::string id_column = "id";
  std::string fence_column = "fence";  ///< an integer of 64 bits; 0 before the first write
};

namespace detail {

/// Errors: `Errc::invalid_argument` for 0, which is no fence, and from 2^53 on.
void check_fence(std::uint64_t fence);

}  // namespace detail

/// Rows that refuse a writer whose lock has been another's since: one UPDATE with the fence in its condition. This, and not the lock, is
/// what keeps a holder that slept past its lease from writing.
///
/// Errors of the members: those of the transaction; `Errc::invalid_argument` for a fence that is none.
/// Thread safety: constant after construction; each transaction belongs to one thread.
/// Example: `stock.update(tx, "sku-7", held.fence(), "pieces = pieces - ?", 3)`
class FencedSqlResource {
 public:
  /// Errors: `Errc::invalid_argument` for names that are none.
  explicit FencedSqlResource(const FencedSqlOptions& options);

  /// Changes one row unless a newer fence has. `assignments` are those of an UPDATE, with `parameters` for their `?`.
  template <SqlTransaction Transaction, class Id, class... Parameters>
  FencedWrite update(Transaction& transaction, const Id& id, std::uint64_t fence,
                     std::string_view assignments, const Parameters&... parameters) const {
    detail::check_fence(fence);
    const std::string statement = update_ + std::string(assignments) + condition_;
    if (detail::changed_one_row(transaction.execute(statement, parameters..., fence, id, fence))) {
      return FencedWrite::written;
    }
    return rows_.version(transaction, id) ? FencedWrite::refused : FencedWrite::missing;
  }

 private:
  VersionedTable rows_;
  std::string update_;  ///< up to SET
  std::string condition_;
};

/// A value and the newest fence that has written it.
struct FencedValue {
  std::uint64_t fence = 0;
  std::string bytes;
  friend bool operator==(const FencedValue&, const FencedValue&) = default;
};

/// The same for values on a Redis server, `prefix:{type:value}:fenced`: one script compares and writes.
///
/// Errors of the members: those of `run_script`; `Errc::invalid_argument` for a fence that is none, before anything is sent.
/// Thread safety: all members may be called concurrently.
/// Lifetime: refers to the store.
template <ScriptStore StoreT>
class FencedRedisResource {
 public:
  explicit FencedRedisResource(StoreT& store) noexcept : store_(&store) {}
  explicit FencedRedisResource(const StoreT&& store) = delete;

  /// Writes unless a newer fence has; the value stays until it is removed by hand.
  FencedWrite write(const Key& key, std::uint64_t fence, std::string_view bytes) {
    detail::check_fence(fence);
    static const RedisScript script(std::string(head) + R"lua(
if fence and fence > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], string.format('%016.0f', ARGV[1]) .. ARGV[2])
return 1
)lua");
    const std::string number = std::to_string(fence);
    return run(script, key, {number, bytes}, {}).integer() == 1 ? FencedWrite::written
                                                                : FencedWrite::refused;
  }
  [[nodiscard]] std::optional<FencedValue> read(const Key& key) {
    static const RedisScript script(std::string(head) + R"lua(
return v and {fence, v:sub(17)}
)lua");
    const RedisReply reply = run(script, key, {}, {.effect = RedisScriptEffect::reads});
    if (reply.is_nil()) return std::nullopt;
    return FencedValue{static_cast<std::uint64_t>(reply.at(0).integer()), reply.at(1).bytes()};
  }

 private:
  static constexpr std::string_view head = R"lua(
local v = redis.call('GET', KEYS[1])
local fence = v and tonumber(v:sub(1, 16))
if v and not fence then return redis.error_reply('CORRUPT what stands under the key has no fence') end
)lua";

  RedisReply run(const RedisScript& script, const Key& key, const RedisWords& arguments,
                 const RedisScriptOptions& options) {
    return store_->run_script(script, {store_->name_for(key, "fenced")}, arguments, options);
  }

  StoreT* store_;
};

}  // namespace v0
}  // namespace idempotency
