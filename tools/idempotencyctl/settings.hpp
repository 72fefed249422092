#pragma once

#include <stdexcept>
#include <string>

namespace idempotencyctl {

/// How the program ends. Part of its interface: never renumber.
enum class Exit : int {
  done = 0,
  absent = 1,  ///< there is no such record
  usage = 2,   ///< the command line, or what it names, cannot be used
  store = 3,   ///< the store cannot be reached, or does not answer
  refused =
      4,  ///< nothing was changed: not confirmed, or the record is not, or no longer, one that this settles
  hazards =
      5,  ///< `doctor` found something that could lose records; `schema check` a schema that is not right
  unknown = 6,    ///< it may have been changed: the store's answer was lost
  unwritten = 7,  ///< it was changed, but what became of it is not in the audit
  stopped = 8,    ///< a signal ended it half-way; the audit says how far it came
};

/// What holds for every command.
struct Settings {
  std::string store;         ///< an address
  std::string table_prefix;  ///< SQL stores; empty: the usual one
  std::string audit_file;    ///< empty: stderr
  std::string who;           ///< for the audit
  bool json = false;
  bool yes = false;
};

/// Ends the program with an exit code and a sentence on stderr.
class Ending : public std::runtime_error {
 public:
  Ending(Exit code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  [[nodiscard]] Exit code() const noexcept { return code_; }

 private:
  Exit code_;
};

}  // namespace idempotencyctl
