// A form is opened with a token and submitted with it, once: a second click gets the first one's answer.

#include <chrono>
#include <iostream>
#include <string>

#include <idempotency/idempotency.hpp>
#include <idempotency/patterns/token_service.hpp>
#include <idempotency/stores/memory.hpp>

namespace idem = idempotency;
using namespace std::chrono_literals;

int main() {
  idem::MemoryStore store;  // in a service: RedisStore or MySqlStore
  idem::IdempotencyGuard guard{store};
  idem::TokenService tokens{store};

  // With the form:
  const std::string token = tokens.issue("order", "alice", 10min);

  // With each submission. The subject is who is logged in, never what the client says.
  int orders = 0;
  const auto submit = [&](const std::string& brought, const std::string& subject) {
    const idem::PresentedToken presented{.token = brought, .purpose = "order", .subject = subject};
    return tokens.run(guard, presented, [&] { return "order " + std::to_string(++orders); });
  };

  const auto first = submit(token, "alice");
  const auto second = submit(token, "alice");
  const auto stolen = submit(token, "mallory");
  const auto invented = submit("let-me-in", "alice");

  std::cout << idem::to_string(first.status()) << ": " << first.value() << '\n'
            << idem::to_string(second.status()) << ": " << second.value() << '\n'
            << "of another's: " << idem::to_string(stolen.status()) << '\n';

  const bool good = orders == 1 && second.value() == "order 1" &&
                    stolen.verdict() == idem::TokenVerdict::foreign_subject &&
                    invented.verdict() == idem::TokenVerdict::unknown;
  return good ? 0 : 1;
}
