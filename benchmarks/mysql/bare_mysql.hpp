#pragma once

#include <mysql.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "idempotency/stores/mysql.hpp"

namespace benchmark_mysql {

/// What a service would write by hand: one connection with its prepared statements, over a table like the store's.
class BareMySql {
 public:
  /// Whether a transaction first looks for a finished record, as `run_in_transaction` does.
  enum class LookUp { none, first };
  enum class Autocommit { on, off };
  /// Whether a duplicate is answered from three columns, or from all that the library answers from: the owner, the fingerprint,
  /// the lease, why it failed, the server's time.
  enum class Columns { three, all };

  explicit BareMySql(const idempotency::MySqlOptions& options,
                     Autocommit autocommit = Autocommit::on);
  BareMySql(const BareMySql&) = delete;
  BareMySql& operator=(const BareMySql&) = delete;

  /// The table that this works on.
  static constexpr std::string_view table = "by_hand";

  void first_run(const std::string& value);
  [[nodiscard]] std::string duplicate(const std::string& value, Columns columns);
  /// The same by a plain SELECT; empty when there is none.
  [[nodiscard]] std::string select(const std::string& value);
  /// One transaction with the record, and one cent for the account; the UPDATE of the record travels with the COMMIT.
  void transaction(const std::string& value, std::uint64_t account, LookUp look_up);

  void run(std::string_view sql);

 private:
  struct Close {
    void operator()(MYSQL* handle) const noexcept { mysql_close(handle); }
    void operator()(MYSQL_STMT* statement) const noexcept { mysql_stmt_close(statement); }
  };
  struct Statement {
    std::unique_ptr<MYSQL_STMT, Close> handle;
    bool answer_is_bound =
        false;  ///< with RETURNING the columns are known only when it has been executed
  };

  Statement prepare(const std::string& sql);
  /// Binds the columns of an answer: state, end of the retention, result; and room for others.
  void bind_answer(Statement& statement);
  void execute(const Statement& statement, MYSQL_BIND* parameters);
  /// Whether there was a row; what it holds is in `answer_` then.
  bool fetch(Statement& statement);
  [[nodiscard]] std::string finished() const;

  void insert(const std::string& value, Statement& statement);
  void begin(const std::string& value);
  [[noreturn]] void fail(const char* words) const;

  std::unique_ptr<MYSQL, Close> handle_;
  Statement insert_;
  Statement insert_all_;  ///< and answers with all columns
  Statement update_;
  Statement select_;
  Statement business_;
  std::array<char, 16> owner_{};
  struct Answer {
    std::uint64_t state = 0;
    std::int64_t expires_at = 0;
    std::array<char, 256> result{};
    unsigned long result_size = 0;
    std::remove_pointer_t<decltype(MYSQL_BIND::is_null)> result_is_null = 0;  ///< bool or my_bool
    struct Other {
      std::array<char, 64> bytes{};
      unsigned long size = 0;
      std::remove_pointer_t<decltype(MYSQL_BIND::is_null)> is_null = 0;
    };
    std::array<Other, 8> others;
  };
  Answer answer_;
};

}  // namespace benchmark_mysql
