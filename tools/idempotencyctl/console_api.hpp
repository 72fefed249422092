#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "audit.hpp"
#include "commands.hpp"
#include "console_duplicates.hpp"
#include "console_watch.hpp"
#include "settings.hpp"
#include "text.hpp"

namespace idempotencyctl {

/// What the page is told.
struct Answer {
  int status = 200;
  Json body;
};

/// The value of a name in the query; empty where there is none.
using Query = std::function<std::string(const char* name)>;

/// What the page says of a record that shall be settled.
struct SettleRequest {
  idem::Key key;
  std::string version = {};  ///< of the record that the operator saw
  bool releases = false;     ///< it is taken from its owner, and not settled
  bool force = false;
  std::string who = {};
  ResolveOptions resolve = {};
};

/// What holds for the whole console.
struct ConsoleOptions {
  std::chrono::milliseconds margin{0};
  std::string policies = {};
  bool settles = false;  ///< started with a token
  bool shows_results = false;
};

/// What the page asks for and says, without HTTP.
///
/// Errors: every member throws `Ending` and those of the store; `failed` makes an answer of each.
/// Thread safety: all members may be called concurrently.
/// Lifetime: borrows all that it is given.
class ConsoleApi {
 public:
  static constexpr std::size_t most_records = 500;                   ///< in one answer
  static constexpr std::size_t most_shown = std::size_t{64} * 1024;  ///< bytes of a result

  ConsoleApi(const Settings& settings, ConsoleOptions options, Watch& watch,
             const Duplicates& duplicates)
      : settings_(settings), options_(std::move(options)), watch_(watch), duplicates_(duplicates) {}

  /// What runs, what is stuck, and since when: from the last look at the store.
  [[nodiscard]] Answer overview() const;
  [[nodiscard]] Answer duplicates() const;
  /// `state` (stuck, running, a state, or nothing), `type`, `older_than`, `after`, `limit`.
  [[nodiscard]] Answer records(const Query& query) const;
  /// `id`, and `result=yes` where results may be shown.
  [[nodiscard]] Answer record(const Query& query) const;
  /// `id` and `name`: the key under which another system knows the operation.
  [[nodiscard]] Answer derived(const Query& query) const;
  /// Settles the record that the operator saw. `from`: by which way it was asked, for the audit.
  [[nodiscard]] Answer settle(const std::string& body, const std::string& from) const;

  /// What to say of the exception that is being handled.
  [[nodiscard]] static Answer failed();

 private:
  [[nodiscard]] Json to_json(const idem::Record& record, idem::Timestamp now) const;
  [[nodiscard]] Answer from_look(const Query& query) const;
  [[nodiscard]] Answer from_store(const Query& query) const;
  [[nodiscard]] bool change(const OpenedStore& store, const idem::Record& seen,
                            const SettleRequest& asked, Change change) const;
  [[nodiscard]] Answer changed_meanwhile(const OpenedStore& store, const idem::Key& key) const;

  const Settings& settings_;
  const ConsoleOptions options_;
  Watch& watch_;
  const Duplicates& duplicates_;
};

}  // namespace idempotencyctl
