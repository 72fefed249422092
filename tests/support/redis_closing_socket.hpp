#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>

#include "idempotency/stores/redis.hpp"
#include "support/child_process.hpp"
#include "support/fault_proxy.hpp"

namespace idempotency::testing_support {

/// A process with the usual action of SIGPIPE, whose `complete` is so large that the server's side goes away while it is being
/// sent. The connection has been found good before, so it is the write that meets the end; the call is then made once more.
/// `options` are those for the server at `port`; they are used with the port of a proxy.
inline void expect_to_outlive_a_closing_socket(std::uint16_t port, RedisOptions options) {
  int to_child[2] = {-1, -1};
  ASSERT_EQ(::pipe(to_child), 0);
  ChildProcess child = ChildProcess::fork([&](const ChildProcess::ToParent& parent) {
    if (std::signal(SIGPIPE, SIG_DFL) == SIG_ERR) return 1;
    if (::read(to_child[0], &options.port, sizeof options.port) != sizeof options.port) return 2;
    options.command_timeout = std::chrono::seconds{60};
    RedisStore store(options);
    const Key key{"closing", "1"};
    const OwnerToken owner = OwnerToken::generate();
    if (store.begin({.key = key, .owner = owner}) != BeginOutcome(Acquired{1, 1})) return 3;
    parent.say("begun");
    char go = 0;
    if (::read(to_child[0], &go, sizeof go) != sizeof go) return 4;
    const std::string large(std::size_t{16} << 20U, 'a');  // more than the sockets hold
    const Completion completion{large, std::chrono::hours{1}};
    if (store.complete(key, {owner, 1}, completion) != WriteOutcome::stored) return 5;
    const std::optional<Record> record = store.find(key);
    return record && record->result == large ? 0 : 6;
  });
  FaultProxy proxy(port);  // after the fork, since it has threads
  const std::uint16_t proxy_port = proxy.port();
  ASSERT_EQ(::write(to_child[1], &proxy_port, sizeof proxy_port),
            static_cast<ssize_t>(sizeof proxy_port));
  ASSERT_EQ(child.next_line(), "begun");

  proxy.harm_next(NetworkFault::reset_in_request);
  ASSERT_EQ(::write(to_child[1], "g", 1), 1);

  EXPECT_EQ(child.wait(), (ProcessEnd{0, 0}));
  EXPECT_EQ(proxy.harmed(), 1U);
  EXPECT_EQ(proxy.connections(), 2U);
  ::close(to_child[0]);
  ::close(to_child[1]);
}

}  // namespace idempotency::testing_support
