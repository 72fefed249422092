#include <gtest/gtest.h>

#include <string>

#include "idempotency/stores/mysql.hpp"
#include "mysql/mysql_connection.hpp"
#include "mysql/mysql_options.hpp"
#include "support/error_of.hpp"

namespace idempotency {
namespace {

using testing_support::code_of;
using testing_support::error_of;

TEST(MySqlAddress, NamesEveryPart) {
  const auto options = MySqlOptions::from_address("mysql://app:secret@db.example:3307/shop");

  EXPECT_EQ(options.host, "db.example");
  EXPECT_EQ(options.port, 3307);
  EXPECT_EQ(options.user, "app");
  EXPECT_EQ(options.password, "secret");
  EXPECT_EQ(options.database, "shop");
  EXPECT_EQ(options.tls, MySqlTls::off);
}

TEST(MySqlAddress, HasDefaultsForPortAndAccount) {
  const auto options = MySqlOptions::from_address("mysql://localhost/shop");

  EXPECT_EQ(options.port, 3306);
  EXPECT_EQ(options.user, "");
  EXPECT_EQ(options.password, "");
}

TEST(MySqlAddress, DecodesWhatIsPercentEncoded) {
  const auto options = MySqlOptions::from_address("mysql://a%40b:p%3A%2F%3F%25@h/d%2Fb");

  EXPECT_EQ(options.user, "a@b");
  EXPECT_EQ(options.password, "p:/?%");
  EXPECT_EQ(options.database, "d/b");
}

TEST(MySqlAddress, TakesAnAddressOfIpVersion6) {
  const auto options = MySqlOptions::from_address("mysql://[::1]:3310/shop");

  EXPECT_EQ(options.host, "::1");
  EXPECT_EQ(options.port, 3310);
}

TEST(MySqlAddress, TakesSettings) {
  const auto options = MySqlOptions::from_address(
      "mysql://h/d?tls=verified&socket=%2Frun%2Fmysqld.sock&connections=3");

  EXPECT_EQ(options.tls, MySqlTls::verified);
  EXPECT_EQ(options.unix_socket, "/run/mysqld.sock");
  EXPECT_EQ(options.connections, 3U);
}

TEST(MySqlAddress, RefusesWhatIsNoAddress) {
  for (const char* address :
       {"", "mysql:", "redis://h/d", "mysql://h", "mysql://h/", "mysql:///d", "mysql://h:0/d",
        "mysql://h:65536/d", "mysql://h:x/d", "mysql://h:/d", "mysql://[::1/d", "mysql://[::1]x/d",
        "mysql://h/d?tls=maybe", "mysql://h/d?unknown=1", "mysql://h/d?tls", "mysql://%4/d",
        "mysql://%zz/d", "mysql://h/d?connections=0"}) {
    EXPECT_EQ(code_of([&] { static_cast<void>(MySqlOptions::from_address(address)); }),
              Errc::invalid_argument)
        << address;
  }
}

TEST(MySqlAddress, NeverShowsThePassword) {
  const Error error = error_of(
      [] { static_cast<void>(MySqlOptions::from_address("mysql://app:secret@db:x/shop")); });

  EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos);
  EXPECT_EQ(error.detail().find("secret"), std::string::npos);
}

TEST(MySqlOptions, RefusesWhatCannotBeUsed) {
  using std::chrono::milliseconds;
  const MySqlOptions good{.database = "shop"};
  EXPECT_NO_THROW(detail::mysql::check_options(good));

  std::vector<MySqlOptions> bad(8, good);
  bad[0].database.clear();
  bad[1].connections = 0;
  bad[2].lock_wait = milliseconds{0};
  bad[3].read_timeout = std::chrono::hours{25};
  bad[4].table_prefix = "x`";
  bad[5].table_prefix = std::string(33, 'a');
  bad[6].user = std::string("a\0b", 3);
  bad[7].host.clear();
  for (const MySqlOptions& options : bad) {
    EXPECT_EQ(code_of([&] { detail::mysql::check_options(options); }), Errc::invalid_argument);
  }
}

TEST(MySqlOptions, NeverRoundsATimeToZeroSeconds) {
  using std::chrono::milliseconds;
  EXPECT_EQ(detail::mysql::to_seconds(milliseconds{1}), 1U);
  EXPECT_EQ(detail::mysql::to_seconds(milliseconds{1000}), 1U);
  EXPECT_EQ(detail::mysql::to_seconds(milliseconds{1001}), 2U);
}

TEST(MySqlLiterals, MeanTheSameUnderAnySetting) {
  using detail::mysql::Parameter;
  const std::string_view bytes("a'\\\0\xff", 5);
  const std::vector<Parameter> parameters{
      Parameter{std::monostate{}}, Parameter{std::int64_t{-7}}, Parameter{~std::uint64_t{0}},
      Parameter{SqlBlobView{bytes}}, Parameter{std::string_view{}}};

  EXPECT_EQ(detail::mysql::with_literals("?,?,?,?,?", parameters),
            "NULL,-7,18446744073709551615,X'61275C00FF',X''");
}

}  // namespace
}  // namespace idempotency
