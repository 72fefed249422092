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

namespace {

constexpr const char* about_to = "about to be changed";

}  // namespace

std::string new_change_id() {
  constexpr std::size_t enough = 8;  // bytes
  const auto token = idem::OwnerToken::generate();
  return hex_of({reinterpret_cast<const char*>(token.bytes().data()), enough});
}

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

std::string Audit::line(const Change& change) const {
  Json json{{"at", to_text(idem::system_clock().now())},
            {"change", change.id},
            {"who", change.who.empty() ? settings_->who : change.who},
            {"command", change.command},
            {"store", without_password(settings_->store)}};
  if (!change.from.empty()) json["from"] = change.from;
  if (!change.key.empty()) json["key"] = change.key;
  json["why"] = change.why;
  json["outcome"] = change.outcome;
  json["before"] = change.before;
  json["after"] = change.after;
  return line_of(json) + '\n';
}

bool Audit::append(const std::string& line) const {
  // One write, so that lines of several processes do not mix.
  const ssize_t written = ::write(descriptor_, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) return false;
  if (descriptor_ == STDERR_FILENO || ::fsync(descriptor_) == 0) return true;
  return errno == EINVAL || errno == EROFS;  // a pipe or a device, which has no disk behind it
}

void Audit::announce(Change change) const {
  change.outcome = about_to;
  change.after = nullptr;
  if (!append(line(change))) {
    throw Ending(Exit::refused, "nothing was changed: the audit cannot be written: " +
                                    std::string(std::strerror(errno)));
  }
}

bool Audit::write(const Change& change) const {
  const std::string text = line(change);
  if (append(text)) return true;
  std::cerr << "idempotencyctl: the audit cannot be written, and lacks this line: " << text
            << std::flush;
  return false;
}

void Audit::write_made(const Change& change) const {
  if (!write(change)) throw Ending(Exit::unwritten, "it was changed, but that is not written down");
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
