// Encrypted connections: what they ask for, whom they trust, and that they fail as plain ones do.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "idempotency/idempotency.hpp"
#include "idempotency/stores/mysql.hpp"
#include "idempotency/testing/printers.hpp"
#include "support/error_of.hpp"
#include "support/fault_proxy.hpp"
#include "support/mariadb_server.hpp"
#include "support/test_certificates.hpp"

namespace idempotency {
namespace {

using testing_support::ChildProcess;
using testing_support::error_of;
using testing_support::FaultProxy;
using testing_support::MariaDbServer;
using testing_support::NetworkFault;
using testing_support::PlainConnection;
using testing_support::ProcessEnd;
using Certificates = testing_support::TestCertificates;

const Certificates& certificates() {
  static const Certificates made;
  return made;
}

/// What a server needs to speak TLS, at two addresses, of which the certificate names the first.
std::vector<std::string> with_tls(std::vector<std::string> settings = {}) {
  for (const std::string& setting :
       {"--ssl-ca=" + certificates().authority(), "--ssl-cert=" + certificates().server(),
        "--ssl-key=" + certificates().server_key(),
        std::string("--bind-address=127.0.0.1,127.0.0.2")})
    settings.push_back(setting);
  return settings;
}

MariaDbServer& tls_server() {
  static MariaDbServer server(with_tls());
  return server;
}

MySqlOptions encrypted(MySqlTls tls, const MariaDbServer& server = tls_server()) {
  MySqlOptions options = server.options();
  options.tls = tls;
  if (tls == MySqlTls::verified) options.tls_ca = certificates().authority();
  return options;
}

/// The cipher of a connection of the store's own; empty when it is not encrypted.
std::string cipher_of(MySqlStore& store) {
  IdempotencyGuard guard{store};
  static int number = 0;
  const std::string value = std::to_string(++number);
  return guard
      .run_in_transaction({.key = {"tls", value}},
                          [](MySqlTransaction& transaction) {
                            const SqlRows rows =
                                transaction.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'");
                            return rows.at(0).as<std::string>("Value");
                          })
      .value();
}

std::string told(const MySqlOptions& options) {
  const Error error = error_of([&] { MySqlStore store(options); });
  return std::string(error.what()) + " / " + error.detail();
}

TEST(MySqlTls, IsOffUnlessAskedFor) {
  MySqlStore store(encrypted(MySqlTls::off));

  EXPECT_EQ(cipher_of(store), "");
}

TEST(MySqlTls, EncryptsWhereRequired) {
  MySqlStore store(encrypted(MySqlTls::required));
  MySqlStore by_address(tls_server().address() + "?tls=required");

  EXPECT_NE(cipher_of(store), "");
  EXPECT_NE(cipher_of(by_address), "");
}

TEST(MySqlTls, VerifiesTheServerByAddressAndByName) {
  MySqlStore by_address(encrypted(MySqlTls::verified));
  MySqlOptions options = encrypted(MySqlTls::verified);
  options.host = "localhost";
  MySqlStore by_name(options);

  EXPECT_NE(cipher_of(by_address), "");
  EXPECT_NE(cipher_of(by_name), "");
}

TEST(MySqlTls, RefusesAServerOfAStrangersAuthority) {
  MySqlOptions options = encrypted(MySqlTls::verified);
  options.tls_ca = certificates().stranger();

  EXPECT_NE(told(options).find("certificate"), std::string::npos) << told(options);
  options.tls_ca.clear();  // the system's authorities do not know it either
  EXPECT_NE(told(options).find("certificate"), std::string::npos) << told(options);
}

TEST(MySqlTls, RefusesAServerWhoseCertificateIsForAnother) {
  MySqlOptions options = encrypted(MySqlTls::verified);
  options.host = "127.0.0.2";

  EXPECT_NE(told(options).find("certificate"), std::string::npos) << told(options);
  options.tls = MySqlTls::required;
  EXPECT_NO_THROW(MySqlStore{options});
}

TEST(MySqlTls, IsNotDroppedForAServerThatDoesNotSpeakIt) {
  for (const MySqlTls tls : {MySqlTls::required, MySqlTls::verified}) {
    const Error error =
        error_of([&] { MySqlStore store(encrypted(tls, MariaDbServer::shared())); });

    EXPECT_FALSE(error.effect_possible());
    EXPECT_NE(std::string(error.what()).find("encrypted"), std::string::npos) << error.what();
  }
}

TEST(MySqlTls, NamesTheRemedyWhenTheServerTakesNothingElse) {
  PlainConnection plain(tls_server().options());
  plain.run("SET GLOBAL require_secure_transport = ON");

  const Error error = error_of([] { MySqlStore store(encrypted(MySqlTls::off)); });
  MySqlStore store(encrypted(MySqlTls::required));
  const std::string cipher = cipher_of(store);
  plain.run("SET GLOBAL require_secure_transport = OFF");

  EXPECT_EQ(error.code(), Errc::store_refused);
  EXPECT_NE(std::string(error.what()).find("tls"), std::string::npos) << error.what();
  EXPECT_NE(cipher, "");
}

TEST(MySqlTls, ShowsTheClientsOwnCertificate) {
  PlainConnection plain(tls_server().options());
  plain.run("CREATE USER IF NOT EXISTS shown@'127.0.0.1' REQUIRE X509");
  plain.run("GRANT ALL ON idempotency_test.* TO shown@'127.0.0.1'");
  MySqlOptions options = encrypted(MySqlTls::verified);
  options.user = "shown";

  EXPECT_EQ(error_of([&] { MySqlStore store(options); }).code(), Errc::store_refused);
  options.tls_certificate = certificates().client();
  options.tls_key = certificates().client_key();
  MySqlStore store(options);
  EXPECT_NE(cipher_of(store), "");
}

TEST(MySqlTls, RefusesFilesThatAreNotThere) {
  MySqlOptions options = encrypted(MySqlTls::verified);
  options.tls_ca = "/nowhere/authority.pem";

  const Error error = error_of([&] { MySqlStore store(options); });

  EXPECT_FALSE(error.effect_possible());
  EXPECT_NE(std::string(error.what()).find("tls_ca"), std::string::npos) << error.what();
}

TEST(MySqlTls, HasOneEffectWhateverTheNetworkDoesToACommit) {
  FaultProxy proxy(tls_server().port());
  MySqlOptions options = encrypted(MySqlTls::verified);
  options.port = proxy.port();
  options.read_timeout = std::chrono::seconds{2};
  MySqlStore store(options);
  IdempotencyGuard guard{store};
  PlainConnection plain(tls_server().options());
  plain.run("CREATE TABLE IF NOT EXISTS moved_tls (value VARCHAR(9)) ENGINE = InnoDB");
  const auto move = [](MySqlTransaction& transaction) {
    transaction.execute("INSERT INTO moved_tls VALUES ('x')");
    return std::string(100'000, 'r');  // several TLS records
  };
  int number = 0;
  for (const NetworkFault fault :
       {NetworkFault::cut_before_reply, NetworkFault::reset_before_reply,
        NetworkFault::reply_swallowed, NetworkFault::cut_before_request, NetworkFault::half_open}) {
    const Operation warm_up{.key = {"tls", "warm-up " + std::to_string(number)}};
    const Operation wanted{.key = {"tls", "harmed " + std::to_string(number)}};
    ASSERT_EQ(guard.run_in_transaction(warm_up, move).status(), RunStatus::executed);
    proxy.harm(3, fault);  // behind the INSERTs of the record and of the business and the UPDATE

    const auto first = guard.run_in_transaction(wanted, move);
    const auto second = guard.run_in_transaction(wanted, move);

    EXPECT_EQ(first.status(), RunStatus::executed);
    EXPECT_EQ(second.status(), RunStatus::replayed);
    ++number;
    EXPECT_EQ(proxy.harmed(), static_cast<std::uint64_t>(number));
    EXPECT_EQ(plain.ask("SELECT COUNT(*) FROM moved_tls"), std::to_string(2 * number));
  }
}

// SIGPIPE with its usual action, where the TLS library is the one that writes.
TEST(MySqlTls, SurvivesAServerThatDiesWithIdleConnections) {
  MariaDbServer server(with_tls());
  int go[2] = {-1, -1};
  ASSERT_EQ(::pipe(go), 0);
  auto child = ChildProcess::fork([&](const ChildProcess::ToParent& parent) {
    ::signal(SIGPIPE, SIG_DFL);
    auto store = std::make_unique<MySqlStore>(encrypted(MySqlTls::required, server));
    if (cipher_of(*store).empty() || store->find({"tls", "k"})) return 1;
    parent.say("ready");
    char byte = 0;
    if (::read(go[0], &byte, 1) != 1) return 2;
    for (int round = 0; round < 3; ++round) {
      if (error_of([&] {
            static_cast<void>(store->find({"tls", "k"}));
          }).code() != Errc::store_unavailable) {
        return 3;
      }
    }
    store.reset();
    return 0;
  });
  ASSERT_EQ(child.next_line(), "ready");

  server.kill();
  ASSERT_EQ(::write(go[1], "x", 1), 1);

  EXPECT_EQ(child.wait(), (ProcessEnd{0, 0}));
  ::close(go[0]);
  ::close(go[1]);
}

}  // namespace
}  // namespace idempotency
