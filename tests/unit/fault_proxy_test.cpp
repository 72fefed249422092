#include "support/fault_proxy.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "support/loopback.hpp"

namespace idempotency::testing_support {
namespace {

/// Answers each thing that it reads with the same in capitals, and counts.
class Shouter {
 public:
  [[nodiscard]] std::uint16_t port() const { return server_.port(); }
  [[nodiscard]] int heard() const { return heard_; }

 private:
  void serve(const Socket& client, const Socket& ended) {
    std::array<char, 64> buffer{};
    while (wait_to_read(client, {}, ended)) {
      std::string bytes(client.receive(buffer));
      if (bytes.empty()) return;
      ++heard_;
      for (char& byte : bytes)
        byte = static_cast<char>(std::toupper(byte));
      if (!client.send(bytes)) return;
    }
  }

  std::atomic<int> heard_{0};
  LoopbackServer server_{
      [this](const Socket& client, const Socket& ended) { serve(client, ended); }};
};

class FaultProxyTest : public ::testing::Test {
 protected:
  /// What a client hears to "abc": the answer, "end", "reset" or "silence".
  [[nodiscard]] static std::string heard_by(const Socket& client) {
    if (!client.send("abc")) return "cannot send";
    std::string answer;
    while (answer.size() < 3) {
      pollfd wait{client.descriptor(), POLLIN, 0};
      if (::poll(&wait, 1, 300) == 0) return answer + "silence";
      std::array<char, 8> bytes{};
      const ssize_t size = ::recv(client.descriptor(), bytes.data(), bytes.size(), 0);
      if (size == 0) return answer + "end";
      if (size < 0) return answer + "reset";
      answer.append(bytes.data(), static_cast<std::size_t>(size));
    }
    return answer;
  }
  [[nodiscard]] std::string with(NetworkFault fault) {
    proxy.harm_next(fault);
    return heard_by(connected_to(proxy.port()));
  }

  Shouter server;
  FaultProxy proxy{server.port()};
};

TEST_F(FaultProxyTest, PassesOnWhatIsNotHarmed) {
  EXPECT_EQ(with(NetworkFault::none), "ABC");
  EXPECT_EQ(with(NetworkFault::delayed), "ABC");
  EXPECT_EQ(with(NetworkFault::trickle), "ABC");
  EXPECT_EQ(proxy.requests(), 3U);
  EXPECT_EQ(proxy.harmed(), 2U);
}

TEST_F(FaultProxyTest, LosesARequestBeforeTheServerHearsIt) {
  EXPECT_NE(with(NetworkFault::cut_before_request), "ABC");
  EXPECT_EQ(with(NetworkFault::half_open), "silence");
  EXPECT_EQ(server.heard(), 0);
}

// With more to send than the sockets hold, so that the end comes in the middle.
TEST_F(FaultProxyTest, EndsARequestInItsMiddleSoThatTheNextWriteMeetsEpipe) {
  proxy.harm_next(NetworkFault::reset_in_request);
  const Socket client = connected_to(proxy.port());
  const std::string bytes(std::size_t{64} << 20U, 'a');

  std::size_t sent = 0;
  ssize_t size = 0;
  while (sent < bytes.size() && size >= 0) {
    size = ::send(client.descriptor(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (size > 0) sent += static_cast<std::size_t>(size);
  }
  const int error = errno;

  EXPECT_EQ(size, -1);
  EXPECT_EQ(error, EPIPE);
  EXPECT_EQ(server.heard(), 0);
}

TEST_F(FaultProxyTest, LosesAReplyAfterTheServerHasAnswered) {
  EXPECT_EQ(with(NetworkFault::cut_before_reply), "end");
  EXPECT_EQ(with(NetworkFault::reset_before_reply), "reset");
  EXPECT_EQ(with(NetworkFault::reply_swallowed), "silence");
  EXPECT_EQ(server.heard(), 3);
}

TEST_F(FaultProxyTest, HarmsTheRequestThatWasMeant) {
  proxy.harm(1, NetworkFault::cut_before_reply);
  const Socket client = connected_to(proxy.port());

  EXPECT_EQ(heard_by(client), "ABC");
  EXPECT_EQ(heard_by(client), "end");
}

}  // namespace
}  // namespace idempotency::testing_support
