#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cancellation.hpp"
#include "redis/redis_pool.hpp"
#include "redis/redis_record.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::redis {

class StoreImpl {
 public:
  /// Whether a call whose answer is lost may have changed a record.
  enum class Effect : std::uint8_t { reads, writes };

  explicit StoreImpl(RedisOptions options);

  /// Whether the store was made before a `fork()` and this is the child.
  [[nodiscard]] bool is_inherited() const noexcept;
  [[nodiscard]] Observer* observer() const noexcept { return options_.observer; }

  [[nodiscard]] std::string key_of(const Key& key) const;
  /// The other way round; nothing for a key that is not one of this store's records.
  [[nodiscard]] std::optional<Key> to_key(std::string_view text) const;
  /// What SCAN matches for the records of one type, or of all.
  [[nodiscard]] std::string scan_pattern(const std::optional<std::string>& type) const;

  /// Lends a connection to `work` and turns what goes wrong into an `Error`. A call that meets a connection that had
  /// been closed while it was idle, or whose server is no primary any more, is made once more on a new one: every call
  /// may be repeated, and the name may lead to another server by now.
  template <class Work>
  auto call(Effect effect, Work work) {
    const CancellationShield shield;
    refuse_after_fork();
    Attempts attempts{effect};
    while (true) {
      try {
        Pool::Loan loan = pool_.take();
        try {
          return work(loan.connection());
        } catch (const Broken& broken) {
          loan.discard();
          attempts.note(broken);
          if (attempts.may_repeat(broken, loan.origin())) {
            pool_.close_idle();
            continue;
          }
          throw attempts.error_of(broken);
        } catch (const ErrorReply& reply) {
          if (reply.meaning.fate == ConnectionFate::discard) loan.discard();
          attempts.note(reply);
          if (attempts.may_repeat(reply, loan.origin())) {
            pool_.close_idle();
            continue;
          }
          throw attempts.error_of(reply);
        } catch (...) {  // an answer that cannot be read: what follows it may not be either
          loan.discard();
          throw;
        }
      } catch (const Broken& broken) {  // while connecting
        throw attempts.error_of(
            Broken{Broken::Progress::nothing_executed, broken.cause, broken.words});
      } catch (const ErrorReply& reply) {
        throw attempts.error_of(reply);
      } catch (const Error& error) {
        attempts.rethrow(error);
      }
    }
  }

  [[nodiscard]] BeginOutcome begin(Connection& connection, const BeginRequest& request) const;
  [[nodiscard]] std::vector<std::optional<BeginOutcome>> begin_many(
      const std::vector<BeginRequest>& requests);

  /// One write of an owner, as the script's arguments.
  struct Write {
    Event event = Event::renew;
    Ownership by;
    std::chrono::milliseconds span{0};  ///< a lease or a retention, as it is stored
    std::string_view reason = {};
    const std::optional<std::string>* result = nullptr;
  };
  [[nodiscard]] WriteOutcome issue(const IssueRequest& request);
  [[nodiscard]] WriteOutcome write(const Key& key, const Write& write);
  [[nodiscard]] std::vector<WriteOutcome> renew_many(const std::vector<Renewal>& renewals);
  [[nodiscard]] WriteOutcome resolve(const Record& seen, const Resolution& resolution);

  /// A record and when its key ends, by the server's clock.
  struct Found {
    StoredRecord record;
    std::int64_t end = no_end;
    Timestamp now{};
  };
  [[nodiscard]] static std::optional<Found> found(const redisReply& reply);

 private:
  /// What the attempts of one call may have done.
  class Attempts {
   public:
    explicit Attempts(Effect effect) noexcept : effect_(effect) {}
    void note(const Broken& broken) noexcept;
    void note(const ErrorReply& reply) noexcept;
    [[nodiscard]] bool may_repeat(const Broken& broken, Pool::Loan::Origin origin) noexcept;
    [[nodiscard]] bool may_repeat(const ErrorReply& reply, Pool::Loan::Origin origin) noexcept;
    [[nodiscard]] Error error_of(const Broken& broken) const;
    [[nodiscard]] Error error_of(const ErrorReply& reply) const;
    [[noreturn]] void rethrow(const Error& error) const;

   private:
    [[nodiscard]] Error reply_lost(std::string words) const;

    Effect effect_;
    bool may_have_written_ = false;
    bool repeated_ = false;
  };

  void refuse_after_fork() const;
  void greet(Connection& connection);

  RedisOptions options_;
  std::uint64_t generation_;
  std::atomic<bool> server_checked_{false};
  Pool pool_;
};

}  // namespace detail::redis
}  // namespace v0
}  // namespace idempotency
