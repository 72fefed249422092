#include "audit.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <idempotency/clock.hpp>
#include <iostream>

#include "store_access.hpp"

namespace idempotencyctl {

Audit::Audit(const Settings& settings) : settings_(&settings), descriptor_(STDERR_FILENO) {
  if (settings.audit_file.empty()) return;
  constexpr int owner_and_group = 0640;
  descriptor_ = ::open(settings.audit_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                       owner_and_group);
  if (descriptor_ < 0) {
    throw Ending(Exit::refused, "nothing was changed: the audit file cannot be opened: " +
                                    std::string(std::strerror(errno)));
  }
}

Audit::~Audit() {
  if (descriptor_ != STDERR_FILENO) ::close(descriptor_);
}

void Audit::write(const Change& change) const {
  Json json{{"at", to_text(idem::system_clock().now())},
            {"who", change.who.empty() ? settings_->who : change.who},
            {"command", change.command},
            {"store", without_password(settings_->store)}};
  if (!change.from.empty()) json["from"] = change.from;
  if (!change.key.empty()) json["key"] = change.key;
  json["why"] = change.why;
  json["outcome"] = change.outcome;
  json["before"] = change.before;
  json["after"] = change.after;
  const std::string line = line_of(json) + '\n';
  // One write, so that lines of several processes do not mix.
  const ssize_t written = ::write(descriptor_, line.data(), line.size());
  const bool kept = written == static_cast<ssize_t>(line.size()) &&
                    (descriptor_ == STDERR_FILENO || ::fsync(descriptor_) == 0);
  if (!kept) {
    throw Ending(Exit::store,
                 "the change was made, but its audit line could not be written: " + line_of(json));
  }
}

void confirm(const Settings& settings, const std::string& question) {
  if (settings.yes) return;
  if (::isatty(STDIN_FILENO) == 0) {
    throw Ending(Exit::refused, "nothing was changed: without a terminal to ask, say --yes");
  }
  std::cerr << question << "\nType yes to do so: " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  if (answer != "yes") throw Ending(Exit::refused, "nothing was changed");
}

std::string name_of_user() {
  const passwd* entry = ::getpwuid(::geteuid());
  const std::string user = entry == nullptr ? std::to_string(::geteuid()) : entry->pw_name;
  const char* behind = std::getenv("SUDO_USER");
  return behind == nullptr || user == behind ? user : std::string(behind) + " as " + user;
}

}  // namespace idempotencyctl
