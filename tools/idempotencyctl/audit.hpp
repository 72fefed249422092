#pragma once

#include <optional>
#include <string>

#include "settings.hpp"
#include "text.hpp"

namespace idempotencyctl {

/// One change, for the audit.
struct Change {
  std::string command = {};
  std::string key = {};  ///< empty: of many records
  std::string why = {};
  std::string who = {};   ///< empty: `--who`
  std::string from = {};  ///< where it was asked for; empty: by the command line
  Json before = nullptr;
  Json after = nullptr;
  std::string outcome = {};
};

/// Writes one line of JSON for each change: when, who, why, what, before and after. To `--audit-file`, or stderr.
class Audit {
 public:
  /// Opens the file, so that nothing is changed that could not be written down.
  ///
  /// Errors: `Ending` (refused).
  explicit Audit(const Settings& settings);
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;
  ~Audit();

  /// Errors: `Ending` (store) when the line cannot be written; the change has been made by then.
  void write(const Change& change) const;

 private:
  const Settings* settings_;
  int descriptor_;
};

/// Returns when `--yes` was given, or when a person at the terminal says yes to `question`.
///
/// Errors: `Ending` (refused) otherwise.
void confirm(const Settings& settings, const std::string& question);

/// The user's name, and the one behind sudo.
[[nodiscard]] std::string name_of_user();

}  // namespace idempotencyctl
