#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "idempotency/stores/sqlite.hpp"
#include "sqlite/sqlite_result.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace idempotency {
inline namespace v0 {
namespace detail::sqlite {

using SteadyTime = std::chrono::steady_clock::time_point;

/// The pauses of somebody who waits for a lock that is not queued for: short, jittered, and shorter
/// the longer it has waited, so that newcomers do not overtake for ever.
class Patience {
 public:
  explicit Patience(SteadyTime deadline) noexcept : deadline_(deadline) {}

  /// Sleeps once. False when the deadline has passed.
  [[nodiscard]] bool pause() noexcept;

 private:
  SteadyTime deadline_;
  std::uint32_t pauses_ = 0;
};

/// A prepared statement, made on first use and kept.
class Statement {
 public:
  Statement(sqlite3* database, std::string sql) : database_(database), sql_(std::move(sql)) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement();

  /// One execution; resets the statement at its end, so that no read transaction is left open.
  class Use {
   public:
    explicit Use(Statement& statement);
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use();

    /// The bound bytes must outlive this use.
    void bind(int index, std::int64_t number);
    void bind(int index, const std::optional<std::int64_t>& number);
    void bind_text(int index, std::string_view text);
    void bind_blob(int index, std::string_view bytes);
    void bind_null(int index);

    /// True: a row is there. False: done.
    [[nodiscard]] bool step();
    /// For statements without rows.
    void run();

    [[nodiscard]] std::int64_t integer(int column) const noexcept;
    [[nodiscard]] bool is_null(int column) const noexcept;
    /// Valid until the next step. `text` is UTF-8 whatever the file's encoding; `bytes` is for
    /// blobs.
    [[nodiscard]] std::string_view bytes(int column) const noexcept;
    [[nodiscard]] std::string_view text(int column) const noexcept;

   private:
    void check(int result_code);

    sqlite3* database_;
    sqlite3_stmt* handle_;
  };

  [[nodiscard]] Use use() { return Use(*this); }

 private:
  sqlite3* database_;
  std::string sql_;
  sqlite3_stmt* handle_ = nullptr;
};

/// What a connection is for.
enum class Purpose : unsigned char { reading, writing };

/// A connection of the store's own: WAL, set up, with a busy handler that does not starve.
///
/// Thread safety: belongs to one thread at a time.
class Connection {
 public:
  Connection(const SqliteOptions& options, Purpose purpose);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  [[nodiscard]] sqlite3* handle() const noexcept { return handle_; }
  /// Until when the next calls wait for locks of others, instead of the usual time-out for each.
  void wait_until(SteadyTime deadline) noexcept { deadline_ = deadline; }
  [[nodiscard]] bool in_transaction() const noexcept;
  /// Runs statements without results.
  void run(const std::string& sql);
  /// The first column of the first row; empty when there is none.
  [[nodiscard]] std::string ask(const std::string& sql);

 private:
  static int on_busy(void* self, int attempt) noexcept;
  void set_up(const SqliteOptions& options, Purpose purpose);
  void switch_to_wal();

  sqlite3* handle_ = nullptr;
  std::chrono::milliseconds busy_timeout_;
  std::optional<SteadyTime> deadline_;
  std::optional<Patience> patience_;
};

/// `name` as an identifier in the main database.
[[nodiscard]] std::string quoted_name(std::string_view name);

}  // namespace detail::sqlite
}  // namespace v0
}  // namespace idempotency
