#pragma once

#include <optional>
#include <string>

#include "settings.hpp"
#include "text.hpp"

namespace idempotencyctl {

/// A new name for a change, which its lines have in common.
[[nodiscard]] std::string new_change_id();

/// One change, for the audit.
struct Change {
  std::string id = new_change_id();
  std::string command = {};
  std::string key = {};  ///< empty: of many records
  std::string why = {};
  std::string who = {};   ///< empty: `--who`
  std::string from = {};  ///< where it was asked for; empty: by the command line
  Json before = nullptr;
  Json after = nullptr;
  std::string outcome = {};
};

/// Writes two lines of JSON for each change: one before it, so that a kill in between leaves a trace, and one when it is known what
/// became of it. When, who, why, what, before and after. To `--audit-file`, or stderr.
class Audit {
 public:
  /// Opens the file, so that nothing is changed that could not be written down.
  ///
  /// Errors: `Ending` (refused).
  explicit Audit(const Settings& settings);
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;
  ~Audit();

  /// Writes that the change is about to be made.
  ///
  /// Errors: `Ending` (refused) when that cannot be written: then it must not be made.
  void announce(Change change) const;
  /// Writes what became of it. False when that cannot be written; the line is on stderr then.
  [[nodiscard]] bool write(const Change& change) const;
  /// The same of a change that was made.
  ///
  /// Errors: `Ending` (unwritten).
  void write_made(const Change& change) const;

 private:
  [[nodiscard]] std::string line(const Change& change) const;
  [[nodiscard]] bool append(const std::string& line) const;

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
