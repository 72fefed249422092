#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "idempotency/sql_transaction.hpp"
#include "idempotency/stores/mysql.hpp"
#include "mysql/mysql_client.hpp"
#include "mysql/mysql_result.hpp"

namespace idempotency {
inline namespace v0 {
namespace detail::mysql {

using Parameter = SqlParameter::Value;
using Parameters = std::span<const Parameter>;
using Cells = std::vector<SqlValue::Value>;

/// What one statement answered.
struct Reply {
  SqlRow::Columns columns;
  std::vector<Cells> rows;
  SqlChanges changes;
};

/// Which server this is and what it allows.
struct ServerTraits {
  SqlDialect dialect = SqlDialect::mysql;
  bool returns_rows_of_insert = false;  ///< INSERT ... RETURNING
  bool sets_for_statement = false;      ///< SET STATEMENT ... FOR
  std::uint64_t max_packet = 1U << 20U;

  /// What a statement's text and parameters may come to together.
  [[nodiscard]] std::uint64_t most_bytes() const noexcept;
};

/// `sql` with its parameters, each '?' in turn, as literals that mean the same under any sql_mode and character set.
/// Preconditions: no '?' in `sql` but those and within quoted names.
[[nodiscard]] std::string with_literals(std::string_view sql, Parameters parameters);

/// Whether transactions begin by themselves and need a COMMIT.
enum class Autocommit : std::uint8_t { on, off };

/// One connection with its prepared statements: the store's own, or one that the application lends.
///
/// Thread safety: belongs to one thread at a time.
class Connection {
 public:
  explicit Connection(const MySqlOptions& options);
  /// Borrows `adopted`; the connection's settings stay as they are.
  Connection(MYSQL* adopted, const ServerTraits& traits);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  /// Executes through a prepared statement, which is kept.
  Reply execute(std::string_view sql, Parameters parameters, Stage stage);
  /// Executes as text, one or (on an own connection) several statements; an answer for each. When a later statement fails, the
  /// error's stage is `stage` and nothing is known of the answers before.
  std::vector<Reply> run(std::string_view sql, Stage stage);

  /// The same on an own connection, for one statement on MariaDB, which gives up where another transaction holds a row for so
  /// long; MySQL waits for a second at least.
  std::vector<Reply> run_waiting(std::string_view sql, Stage stage, unsigned seconds);

  /// Sends ROLLBACK and does not wait for its answer, which `settle` takes before the connection is used again.
  void send_rollback() noexcept;
  /// Takes an answer that is still owed; false when it did not come or was bad, and then the connection is broken.
  bool settle() noexcept;

  void set_autocommit(Autocommit wanted);
  /// How long the session's statements wait for a lock, where no statement can say that for itself.
  void set_lock_wait(unsigned seconds);
  /// As the server said last, whoever changed it.
  [[nodiscard]] Autocommit autocommit() const noexcept;
  [[nodiscard]] bool in_transaction() const noexcept;
  /// The transaction's end did not go well, or the connection is gone.
  [[nodiscard]] bool is_broken() const noexcept { return broken_; }
  void set_broken() noexcept { broken_ = true; }
  /// The number of the last error, 0 when the last statement had none.
  [[nodiscard]] unsigned last_error() const noexcept { return last_error_; }
  /// Whether it has answered before: an error may only mean that it was closed while it was idle.
  [[nodiscard]] bool was_used() const noexcept { return used_; }

  /// Whether the server takes a statement whose text and parameters are so large.
  [[nodiscard]] bool takes(std::uint64_t bytes) const noexcept;
  [[nodiscard]] const ServerTraits& traits() const noexcept { return traits_; }
  [[nodiscard]] MYSQL* handle() const noexcept { return handle_; }
  /// Whether it takes several statements in one text: one of the store's own.
  [[nodiscard]] bool takes_several() const noexcept { return owned_; }
  /// Forgets the handle without a word to the server: it belongs to the parent of a fork.
  void abandon() noexcept;

 private:
  class Prepared;
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>{}(text);
    }
  };

  void connect(const MySqlOptions& options);
  void read_traits();
  Prepared& prepared(std::string_view sql, Stage stage);
  void check_size(std::uint64_t bytes) const;
  Reply take_answer(Stage stage);
  [[nodiscard]] SqlChanges changes(std::uint64_t affected) const noexcept;
  [[noreturn]] void fail(Stage stage, std::string_view doing);
  [[noreturn]] void fail(unsigned code, const std::string& words, Stage stage,
                         std::string_view doing);

  MYSQL* handle_ = nullptr;
  bool owned_ = true;
  bool broken_ = false;
  bool used_ = false;
  bool is_owed_answer_ = false;
  Traffic traffic_ = Traffic::plain;
  unsigned lock_wait_ = 0;  ///< in seconds, as the session was told
  unsigned last_error_ = 0;
  ServerTraits traits_;
  std::unordered_map<std::string, std::unique_ptr<Prepared>, TextHash, std::equal_to<>> statements_;
};

}  // namespace detail::mysql
}  // namespace v0
}  // namespace idempotency
