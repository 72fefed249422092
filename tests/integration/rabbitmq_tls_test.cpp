// Encrypted connections: whom they trust, what they show, and that they carry what plain ones do.

#include <amqp.h>
#include <amqp_ssl_socket.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "edges/rabbitmq/rabbitmq_link.hpp"
#include "idempotency/edges/consumer.hpp"
#include "idempotency/edges/rabbitmq.hpp"
#include "idempotency/idempotency.hpp"
#include "idempotency/stores/memory.hpp"
#include "support/error_of.hpp"
#include "support/fault_proxy.hpp"
#include "support/rabbitmq_server.hpp"
#include "support/tcp_relay.hpp"
#include "support/test_certificates.hpp"

namespace idempotency {
namespace {

using namespace std::chrono_literals;
using detail::rabbitmq::as_bytes;
using detail::rabbitmq::channel;
using testing_support::code_of;
using testing_support::error_of;
using testing_support::FaultProxy;
using testing_support::NetworkFault;
using testing_support::RabbitMqServer;
using testing_support::TestCertificates;

const TestCertificates& certificates() {
  static const TestCertificates made;
  return made;
}

RabbitMqServer::Encryption encryption() {
  return {certificates().authority(), certificates().server(), certificates().server_key()};
}

/// A server that speaks TLS too, shared by the tests that only talk to it.
RabbitMqServer& server() {
  static RabbitMqServer shared({}, encryption());
  return shared;
}

/// Of a queue of the test's own.
RabbitMqOptions encrypted(const RabbitMqServer& to) {
  RabbitMqOptions options = to.options();
  options.port = to.encrypted_port();
  options.queue = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  options.retry_step = 10ms;
  options.wait = 20ms;
  options.encryption = RabbitMqEncryption::tls;
  options.tls.ca_file = certificates().authority();
  return options;
}

RabbitMqOptions plain(const RabbitMqServer& to) {
  RabbitMqOptions options = encrypted(to);
  options.port = to.port();
  options.encryption = RabbitMqEncryption::off;
  options.tls = {};
  return options;
}

/// A producer without encryption.
void send(const RabbitMqServer& to, const std::vector<std::string>& bodies) {
  const std::string queue = encrypted(to).queue;
  detail::rabbitmq::Publisher producer(plain(to));
  producer.declare(queue, {});
  for (const std::string& body : bodies)
    producer.publish(queue, {}, as_bytes(body));
}

std::size_t depth(const RabbitMqServer& at, const std::string& queue) {
  const detail::rabbitmq::Link link(plain(at));
  const amqp_queue_declare_ok_t* answer =
      amqp_queue_declare(link.state(), channel, as_bytes(queue), 1, 0, 0, 0, amqp_empty_table);
  link.check_reply("depth");
  return answer->message_count;
}

template <class Handle>
void poll_until(RabbitMqConsumer& source, std::size_t messages, Handle handle) {
  std::size_t handled = 0;
  for (int round = 0; round < 2'000 && handled < messages; ++round) {
    handled += source.poll(handle).handled;
  }
  EXPECT_EQ(handled, messages);
}

/// The error of a first round.
Error error_with(const RabbitMqOptions& options) {
  return error_of([&] {
    RabbitMqConsumer source{options};
    static_cast<void>(source.poll([](const ReceivedMessage&) { return MessageDisposition{}; }));
  });
}

/// Whether a message passes and is settled.
bool works(const RabbitMqServer& with, const RabbitMqOptions& options) {
  send(with, {"payload"});
  std::string seen;
  {
    RabbitMqConsumer source{options};
    poll_until(source, 1, [&](const ReceivedMessage& message) {
      seen = message.body;
      return MessageDisposition{};
    });
  }
  return seen == "payload" && depth(with, options.queue) == 0;
}

std::string random_bytes(std::size_t size, unsigned seed) {
  std::string bytes(size, '\0');
  std::mt19937 random(seed);
  for (char& byte : bytes)
    byte = static_cast<char>(random());
  return bytes;
}

/// Shakes hands with one client, and closes.
class TlsStandIn {
 public:
  TlsStandIn() {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* address = reinterpret_cast<sockaddr*>(&place);
    socklen_t size = sizeof place;
    if (::bind(listener_, address, size) != 0 || ::listen(listener_, 1) != 0 ||
        ::getsockname(listener_, address, &size) != 0 ||
        SSL_CTX_use_certificate_chain_file(context_.get(), certificates().server().c_str()) != 1 ||
        SSL_CTX_use_PrivateKey_file(context_.get(), certificates().server_key().c_str(),
                                    SSL_FILETYPE_PEM) != 1) {
      throw std::runtime_error("no stand-in");
    }
    port_ = ntohs(place.sin_port);
    serving_ = std::thread([this] { serve(); });
  }
  ~TlsStandIn() {
    end();
    ::close(listener_);
  }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  struct Client {
    bool has_finished;  ///< its part of the handshake
    std::string asked_for;
  };
  /// When the client has gone.
  const Client& client() {
    end();
    return client_;
  }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
    void operator()(SSL* session) const noexcept { SSL_free(session); }
  };
  void end() {
    ::shutdown(listener_, SHUT_RDWR);
    if (serving_.joinable()) serving_.join();
  }
  void serve() {
    const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) return;
    const std::unique_ptr<SSL, Free> session(SSL_new(context_.get()));
    if (session && SSL_set_fd(session.get(), descriptor) == 1) {
      client_.has_finished = SSL_accept(session.get()) == 1;
      const char* name = SSL_get_servername(session.get(), TLSEXT_NAMETYPE_host_name);
      if (name != nullptr) client_.asked_for = name;
      if (client_.has_finished) SSL_shutdown(session.get());
    }
    ::close(descriptor);
  }

  int listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::uint16_t port_ = 0;
  std::unique_ptr<SSL_CTX, Free> context_{SSL_CTX_new(TLS_server_method())};
  Client client_{};
  std::thread serving_;
};

TEST(RabbitMqTls, ReachesAServerByNameAndByAddress) {
  RabbitMqOptions by_address = encrypted(server());
  RabbitMqOptions by_name = by_address;
  by_name.host = "localhost";

  EXPECT_TRUE(works(server(), by_address));
  EXPECT_TRUE(works(server(), by_name));
}

TEST(RabbitMqTls, SpeaksNothingOlderThanTls12) {
  using Connection = std::unique_ptr<amqp_connection_state_t_, decltype(&amqp_destroy_connection)>;
  std::optional<detail::rabbitmq::Tls> tls;
  const Connection connection(amqp_new_connection(), &amqp_destroy_connection);

  tls.emplace(connection.get(), encrypted(server()));

  auto* context = static_cast<SSL_CTX*>(amqp_ssl_socket_get_context(tls->socket()));
  EXPECT_EQ(SSL_CTX_get_min_proto_version(context), TLS1_2_VERSION);
}

TEST(RabbitMqTls, RefusesAServerOfAnotherAuthority) {
  RabbitMqOptions options = encrypted(server());
  options.tls.ca_file = certificates().stranger();
  const Error stranger = error_with(options);
  options.tls.ca_file.clear();
  const Error by_the_system = error_with(options);

  EXPECT_EQ(stranger.code(), Errc::store_refused);
  EXPECT_EQ(by_the_system.code(), Errc::store_refused);
  EXPECT_NE(stranger.detail().find("certificate"), std::string::npos) << stranger.detail();
}

TEST(RabbitMqTls, RefusesACertificateForAnotherName) {
  RabbitMqOptions options = encrypted(server());
  options.tls.server_name = "queue.example";
  const Error name = error_with(options);
  options.tls.server_name = "127.0.0.2";
  const Error address = error_with(options);
  options.tls.server_name = "localhost";

  EXPECT_EQ(name.code(), Errc::store_refused);
  EXPECT_NE(name.detail().find("ostname mismatch"), std::string::npos) << name.detail();
  EXPECT_EQ(address.code(), Errc::store_refused);
  EXPECT_TRUE(works(server(), options)) << "the host's address, checked by name";
}

TEST(RabbitMqTls, StopsInTheHandshakeWithAServerThatItDoesNotTrust) {
  TlsStandIn stand_in;
  RabbitMqOptions options = encrypted(server());
  options.port = stand_in.port();
  options.tls.server_name = "queue.example";

  EXPECT_EQ(error_with(options).code(), Errc::store_refused);
  EXPECT_FALSE(stand_in.client().has_finished);
  EXPECT_EQ(stand_in.client().asked_for, "queue.example");
}

TEST(RabbitMqTls, AsksForNoNameWhereTheHostIsAnAddress) {
  TlsStandIn stand_in;
  RabbitMqOptions options = encrypted(server());
  options.port = stand_in.port();

  EXPECT_EQ(error_with(options).code(), Errc::store_unavailable) << "closed before the login";
  EXPECT_TRUE(stand_in.client().has_finished);
  EXPECT_EQ(stand_in.client().asked_for, "");
}

/// The refusal by a server that wants a certificate. Behind the handshake of TLS 1.3 its words are lost now and then, because it closes
/// before it has read ours; then the connection just ends.
Error refusal_with(const RabbitMqOptions& options) {
  Error error = error_with(options);
  for (int attempt = 0; attempt < 50 && error.code() != Errc::store_refused; ++attempt) {
    EXPECT_EQ(error.code(), Errc::store_unavailable) << error.what() << error.detail();
    EXPECT_NE(std::string(error.what()).find("certificate"), std::string::npos) << error.what();
    error = error_with(options);
  }
  return error;
}

void expect_to_show_its_certificate(const RabbitMqServer& to) {
  RabbitMqOptions options = encrypted(to);
  options.password = "a secret";
  const Error refused = refusal_with(options);
  options.password = to.options().password;
  options.tls.certificate_file = certificates().client();
  options.tls.key_file = certificates().client_key();

  EXPECT_EQ(refused.code(), Errc::store_refused) << refused.what() << refused.detail();
  EXPECT_EQ((refused.what() + refused.detail()).find("secret"), std::string::npos);
  EXPECT_TRUE(works(to, options));
}

constexpr const char* wants_certificates =
    "ssl_options.verify = verify_peer\n"
    "ssl_options.fail_if_no_peer_cert = true\n";

TEST(RabbitMqTls, ShowsItsOwnCertificateToAServerThatAsks) {
  const RabbitMqServer own(std::string(wants_certificates) + "ssl_options.versions.1 = tlsv1.3\n",
                           encryption());

  expect_to_show_its_certificate(own);
}

TEST(RabbitMqTls, ShowsItsOwnCertificateInTls12AsWell) {
  const RabbitMqServer own(std::string(wants_certificates) + "ssl_options.versions.1 = tlsv1.2\n",
                           encryption());

  expect_to_show_its_certificate(own);
}

TEST(RabbitMqTls, RefusesFilesThatCannotBeUsedEvenWithoutAServer) {
  RabbitMqOptions missing = encrypted(server());
  missing.port = 1;
  missing.tls.ca_file += ".missing";
  RabbitMqOptions other_key = encrypted(server());
  other_key.port = 1;
  other_key.tls.certificate_file = certificates().client();
  other_key.tls.key_file = certificates().server_key();
  RabbitMqOptions locked_key = other_key;
  locked_key.tls.key_file = certificates().locked_key();

  EXPECT_EQ(error_with(missing).code(), Errc::store_refused);
  EXPECT_EQ(error_with(other_key).code(), Errc::store_refused);
  EXPECT_EQ(error_with(locked_key).code(), Errc::store_refused)
      << "and asks nobody for the passphrase";
}

TEST(RabbitMqTls, RefusesOptionsThatContradictEachOther) {
  const auto code = [](const RabbitMqOptions& wrong) {
    return code_of([&] { RabbitMqConsumer source{wrong}; });
  };
  RabbitMqOptions off = encrypted(server());
  off.encryption = RabbitMqEncryption::off;
  RabbitMqOptions keyless = encrypted(server());
  keyless.tls.certificate_file = certificates().client();
  RabbitMqOptions only_a_key = encrypted(server());
  only_a_key.tls.key_file = certificates().client_key();
  RabbitMqOptions nobody = encrypted(server());
  nobody.host.clear();
  RabbitMqOptions cut_short = encrypted(server());
  cut_short.tls.server_name = std::string("localhost\0.example", 18);

  EXPECT_EQ(code(off), Errc::invalid_argument);
  EXPECT_EQ(code(keyless), Errc::invalid_argument);
  EXPECT_EQ(code(only_a_key), Errc::invalid_argument);
  EXPECT_EQ(code(nobody), Errc::invalid_argument);
  EXPECT_EQ(code(cut_short), Errc::invalid_argument);
}

TEST(RabbitMqTls, IsRefusedByAPortWithoutIt) {
  RabbitMqOptions options = encrypted(server());
  options.port = server().port();

  EXPECT_EQ(error_with(options).code(), Errc::store_refused);
}

TEST(RabbitMqTls, IsMissedByAPlainClientAtOnce) {
  RabbitMqOptions options = plain(server());
  options.port = server().encrypted_port();

  const auto started = std::chrono::steady_clock::now();
  EXPECT_TRUE(error_with(options).safe_to_retry());
  EXPECT_LT(std::chrono::steady_clock::now() - started, options.reply_timeout);
}

TEST(RabbitMqTls, WaitsForTheHandshakeNoLongerThanForAConnection) {
  FaultProxy proxy(server().encrypted_port());
  proxy.plan([](std::uint64_t) { return NetworkFault::half_open; });
  RabbitMqOptions options = encrypted(server());
  options.port = proxy.port();
  options.connect_timeout = 100ms;

  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(error_with(options).code(), Errc::store_unavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - started, 10 * options.connect_timeout + 5s);
}

TEST(RabbitMqTls, WaitsForTheLoginNoLongerThanForAnAnswer) {
  FaultProxy proxy(server().encrypted_port());
  RabbitMqOptions options = encrypted(server());
  options.port = proxy.port();
  options.reply_timeout = 100ms;

  proxy.harm(1, NetworkFault::half_open);
  const auto started = std::chrono::steady_clock::now();
  EXPECT_TRUE(error_with(options).safe_to_retry());
  EXPECT_LT(std::chrono::steady_clock::now() - started, 10 * options.reply_timeout + 5s);
  EXPECT_EQ(proxy.harmed(), 1U);
}

TEST(RabbitMqTls, IsUnavailableWhenTheConnectionEndsDuringTheHandshake) {
  FaultProxy proxy(server().encrypted_port());
  RabbitMqOptions options = encrypted(server());
  options.port = proxy.port();

  proxy.harm_next(NetworkFault::cut_before_reply);
  EXPECT_EQ(error_with(options).code(), Errc::store_unavailable);
  proxy.harm_next(NetworkFault::reset_before_reply);
  EXPECT_EQ(error_with(options).code(), Errc::store_unavailable);
}

// What came with the first message of a burst waits in OpenSSL or in rabbitmq-c, and not in the socket: who asks only the
// socket for more would wait for the next heartbeat.
TEST(RabbitMqTls, HandsOverABurstWithoutWaitingInBetween) {
  std::vector<std::string> bodies;
  for (unsigned number = 0; number < 600; ++number)
    bodies.push_back(random_bytes(number % 7 == 0 ? 40'000 : number % 50, number));
  send(server(), bodies);
  RabbitMqOptions options = encrypted(server());
  options.prefetch = 400;
  options.wait = 20s;
  options.heartbeat = 60s;
  std::vector<std::string> seen;
  std::size_t rounds = 0;

  const auto started = std::chrono::steady_clock::now();
  RabbitMqConsumer source{options};
  while (seen.size() < bodies.size()) {
    const PolledMessages polled = source.poll([&](const ReceivedMessage& message) {
      seen.push_back(message.body);
      return MessageDisposition{};
    });
    ++rounds;
    ASSERT_GT(polled.handled, 0U) << "after " << seen.size() << " messages, in round " << rounds;
  }

  EXPECT_LT(std::chrono::steady_clock::now() - started, options.wait);
  EXPECT_TRUE(seen == bodies);
}

TEST(RabbitMqTls, CarriesMessagesOfManyRecordsAndFramesInBothDirections) {
  const std::vector<std::string> bodies{random_bytes(16'384, 1), random_bytes(16'385, 2),
                                        random_bytes(131'072, 3),
                                        random_bytes(std::size_t{3} * 1024 * 1024 + 17, 4)};
  send(server(), bodies);
  RabbitMqConsumer source{encrypted(server())};
  std::vector<std::string> returned;

  poll_until(source, 2 * bodies.size(), [&](const ReceivedMessage& message) {
    if (message.delivery_count == 1) {
      return MessageDisposition{.action = MessageAction::requeue, .delay = 1ms};
    }
    returned.push_back(message.body);
    return MessageDisposition{};
  });

  EXPECT_TRUE(returned == bodies);
  EXPECT_EQ(depth(server(), encrypted(server()).queue), 0U);
}

TEST(RabbitMqTls, PutsADeadLetterAsideWithItsReason) {
  send(server(), {"payload"});
  RabbitMqConsumer source{encrypted(server())};

  poll_until(source, 1, [](const ReceivedMessage&) {
    return MessageDisposition{
        .action = MessageAction::dead_letter, .reason = MessageReason::uncertain, .attempts = 3};
  });

  RabbitMqOptions grave = encrypted(server());
  grave.queue += ".dead";
  grave.declare = RabbitMqQueue::existing;
  RabbitMqConsumer mourner{grave};
  std::map<std::string, std::string> headers;
  poll_until(mourner, 1, [&](const ReceivedMessage& message) {
    EXPECT_EQ(message.body, "payload");
    headers = {message.headers.begin(), message.headers.end()};
    return MessageDisposition{};
  });
  EXPECT_EQ(headers["dead-letter-reason"], "uncertain");
  EXPECT_EQ(headers["dead-letter-attempts"], "3");
}

// HI-01
TEST(RabbitMqTls, SurvivesThatTheConnectionBreaksInTheMiddleOfAHandler) {
  ASSERT_NE(std::signal(SIGPIPE, SIG_DFL), SIG_ERR);
  send(server(), {"payload"});
  testing_support::TcpRelay relay(server().encrypted_port());
  RabbitMqOptions options = encrypted(server());
  options.port = relay.port();
  MemoryStore store;
  IdempotencyGuard guard{store};
  IdempotentConsumer consumer{guard, key_of("order", &ReceivedMessage::key)};
  RabbitMqConsumer source{options};
  std::stop_source stop;
  int runs = 0;

  const ConsumeEnd end = source.run(stop.get_token(), [&](const ReceivedMessage& message) {
    MessageDisposition disposition = consumer.handle(message, [&](const ReceivedMessage&) {
      ++runs;
      relay.cut();
    });
    if (disposition.reason == MessageReason::done_before) stop.request_stop();
    return disposition;
  });

  EXPECT_EQ(end, ConsumeEnd::stop_requested);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(depth(server(), options.queue), 0U);
}

}  // namespace
}  // namespace idempotency
