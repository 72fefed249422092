#pragma once

#include <string>

#include "support/temporary_directory.hpp"

namespace idempotency::testing_support {

/// Certificates for one test, made when it runs: an authority, a server's and a client's of it, and a stranger's
/// authority. The server's is for the name "localhost" and the address 127.0.0.1.
class TestCertificates {
 public:
  TestCertificates();

  [[nodiscard]] std::string authority() const { return directory_.file("authority.pem"); }
  [[nodiscard]] std::string stranger() const { return directory_.file("stranger.pem"); }
  [[nodiscard]] std::string server() const { return directory_.file("server.pem"); }
  [[nodiscard]] std::string server_key() const { return directory_.file("server.key"); }
  [[nodiscard]] std::string client() const { return directory_.file("client.pem"); }
  [[nodiscard]] std::string client_key() const { return directory_.file("client.key"); }
  /// The client's key again, which asks for a passphrase.
  [[nodiscard]] std::string locked_key() const { return directory_.file("locked.key"); }

 private:
  TemporaryDirectory directory_;
};

}  // namespace idempotency::testing_support
