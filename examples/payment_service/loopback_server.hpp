#pragma once

#include <httplib.h>

#include <csignal>
#include <cstddef>

namespace shop {

/// An HTTP server on 127.0.0.1, at a port of the system's choice, that ends at SIGTERM or SIGINT.
///
/// Make it first in `main`: it blocks the two signals for all threads that are started later.
class LoopbackServer {
 public:
  LoopbackServer();

  /// Where routes are added.
  [[nodiscard]] httplib::Server& http() noexcept { return http_; }

  /// Prints the port on a line of its own, serves, and returns when a signal said so.
  ///
  /// `connections`: how many are served at a time; each takes a thread.
  void serve(std::size_t connections);

 private:
  httplib::Server http_;
  sigset_t stop_signals_{};
};

}  // namespace shop
