// The accident of forms: somebody clicks twice, or the service dies when it has just taken the token. Tokens that are looked
// up and deleted let two orders through, or none; taken in one step with the order's record they let one through, always.
//
//   one_token --folder FOLDER

#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

#include <idempotency/idempotency.hpp>
#include <idempotency/patterns/token_service.hpp>
#include <idempotency/stores/sqlite.hpp>

#include "accident.hpp"

namespace idem = idempotency;
using namespace std::chrono_literals;

namespace {

enum class Death { none, after_taking_the_token };

void die_if(Death death) {
  if (death == Death::after_taking_the_token) std::raise(SIGKILL);
}

/// A database with tokens and orders, open in one process.
class Shop {
 public:
  explicit Shop(const std::filesystem::path& file)
      : store_({.path = file.string(), .durability = idem::SqliteDurability::normal}) {
    idem::SqliteTransaction setup = store_.open_transaction();
    setup.execute("CREATE TABLE IF NOT EXISTS token (id TEXT PRIMARY KEY)");
    setup.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)");
    store_.commit(setup);
  }

  // As it is often written: is the token there? Then delete it, then do the work.
  std::string issue_naively() {
    const std::string token = "t-" + std::to_string(ask("SELECT count(*) FROM token") + 1);
    write("INSERT INTO token VALUES ('" + token + "')");
    return token;
  }
  template <class Meanwhile>
  std::string submit_naively(const std::string& token, Death death, Meanwhile meanwhile) {
    const int known = ask("SELECT count(*) FROM token WHERE id = '" + token + "'");
    meanwhile();  // the other click
    if (known == 0) return "refused: this form has been sent already";
    write("DELETE FROM token WHERE id = '" + token + "'");
    die_if(death);
    write("INSERT INTO orders DEFAULT VALUES");
    return "thank you for your order";
  }

  std::string issue() { return tokens_.issue("order", "alice", 10min); }
  template <class Meanwhile>
  std::string submit(const std::string& token, Death death, Meanwhile meanwhile) {
    meanwhile();
    const auto result = tokens_.run_in_transaction(
        guard_, {.token = token, .purpose = "order", .subject = "alice"},
        [&](idem::SqliteTransaction& transaction) {
          die_if(death);  // nothing is committed yet: neither that the token is used, nor the order
          transaction.execute("INSERT INTO orders DEFAULT VALUES");
          return std::string("thank you for your order");
        });
    return result.has_value() ? result.value() : "refused";
  }

  [[nodiscard]] int orders() { return ask("SELECT count(*) FROM orders"); }

 private:
  int ask(const std::string& question) {
    idem::SqliteTransaction transaction = store_.open_transaction();
    const int answer = transaction.query(question).at(0).as<int>(0);
    store_.commit(transaction);
    return answer;
  }
  void write(const std::string& statement) {
    idem::SqliteTransaction transaction = store_.open_transaction();
    transaction.execute(statement);
    store_.commit(transaction);
  }

  idem::SqliteStore store_;
  // A form's order is remembered for as long as it may be sent, and longer.
  idem::IdempotencyGuard<idem::SqliteStore> guard_{store_};
  idem::TokenService tokens_{store_};
};

/// How many orders two clicks at once make.
template <class Issue, class Submit>
int click_twice(const std::filesystem::path& file, Issue issue, Submit submit) {
  Shop shop(file);
  const std::string token = issue(shop);
  std::barrier<> both(2);
  const auto click = [&] { submit(shop, token, Death::none, [&] { both.arrive_and_wait(); }); };
  {
    const std::jthread one(click);
    const std::jthread two(click);
  }
  return shop.orders();
}

/// How many orders there are after a click whose process was killed, and another click.
template <class Issue, class Submit>
int click_after_death(const std::filesystem::path& file, Issue issue, Submit submit) {
  const auto nothing = [] {};
  const std::string token = [&] {
    Shop shop(file);
    return issue(shop);
  }();
  const pid_t child = ::fork();  // nothing is open here
  if (child < 0) throw std::runtime_error("no process can be started");
  if (child == 0) {
    Shop shop(file);
    submit(shop, token, Death::after_taking_the_token, nothing);
    ::_exit(1);  // it should have died
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
    throw std::runtime_error("the process did not die of SIGKILL");
  Shop shop(file);
  submit(shop, token, Death::none, nothing);
  return shop.orders();
}

int play(const std::filesystem::path& folder) {
  const auto issue_naively = [](Shop& shop) { return shop.issue_naively(); };
  const auto submit_naively = [](Shop& shop, const std::string& token, Death death,
                                 auto meanwhile) {
    static_cast<void>(shop.submit_naively(token, death, meanwhile));
  };
  const auto issue = [](Shop& shop) { return shop.issue(); };
  const auto submit = [](Shop& shop, const std::string& token, Death death, auto meanwhile) {
    static_cast<void>(shop.submit(token, death, meanwhile));
  };

  std::cout << "One token, two submissions" << std::endl;
  const int two = click_twice(folder / "1.db", issue_naively, submit_naively);
  const int none = click_after_death(folder / "2.db", issue_naively, submit_naively);
  const int one = click_twice(folder / "3.db", issue, submit);
  const int one_after_all = click_after_death(folder / "4.db", issue, submit);
  std::cout << "  looked up and deleted: two clicks make " << two
            << " orders; a SIGKILL and another click make " << none << '\n'
            << "  taken with the record:  two clicks make " << one
            << " order; a SIGKILL and another click make " << one_after_all << std::endl;

  const bool kept = one == 1 && one_after_all == 1;
  const bool shown = two == 2 && none == 0;
  const bool is_kept = shop::holds(kept, "a token is good for one order, and for no fewer");
  const bool is_shown =
      shop::holds(shown, "tokens that are deleted let two orders through, or none");
  return is_kept && is_shown ? 0 : 1;
}

}  // namespace

int main(int count, char** values) { return shop::play_accident("one_token", count, values, play); }
