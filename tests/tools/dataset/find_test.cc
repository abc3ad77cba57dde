// SPDX-License-Identifier: MIT
// Tests of the order of datasets: Python's for names that are UTF-8 and for those that are not;
// natural; total. The expected lists are what Python's sorted() makes of os.fsdecode().
#include "tools/dataset/find.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dataset {
namespace {

using ::testing::ElementsAreArray;

/// `names` sorted, whatever order they are given in.
void expect_order(const std::vector<std::string>& names, Order order) {
  std::mt19937 random(1);
  std::vector<std::string> sorted = names;
  for (int round = 0; round < 20; ++round) {
    std::ranges::shuffle(sorted, random);
    std::ranges::sort(sorted, [order](const std::string& a, const std::string& b) {
      return comes_before(a, b, order);
    });
    EXPECT_THAT(sorted, ElementsAreArray(names));
  }
}

TEST(Order, OfNamesIsPythons) {
  // Of bytes that are not UTF-8: behind Korean, before private use, wide letters and emoji.
  expect_order(
      {"A",      "a",        "a-",           "a1",           "a10",          "a2",
       "\u00e9", "\u20ac",   "\ud7ff",       "\x80",         "\x80z",        "\xc0\xaf",
       "\xc3",   "\xe2\x82", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x9f\x98", "\xf4\x90\x80\x80",
       "\xff",   "\xff\xfe", "\ue000",       "\uff21",       "\U0001f600"},
      Order::name);
}

TEST(Order, NaturalSortsNumbersByValueInAnyName) {
  expect_order({"0", "00", "1",
                "\xff"
                "01",
                "\xff"
                "1",
                "\xff"
                "2",
                "\xff"
                "10",
                "\xff"
                "10\xff",
                "\uff21"
                "3",
                "\uff21"
                "20"},
               Order::natural);
}

TEST(Order, IsTotal) {
  std::mt19937 random(2);
  std::vector<std::string> names(150);
  const std::vector<std::string> parts = {"0",    "1",    "01",   "9",      "10",     "a",
                                          "\xff", "\x80", "\xe2", "\u20ac", "\uff21", "-"};
  for (std::string& name : names)
    for (size_t i = random() % 4; i-- > 0;) name += parts[random() % parts.size()];
  for (const Order order : {Order::name, Order::natural}) {
    for (const std::string& a : names) {
      for (const std::string& b : names) {
        const bool before = comes_before(a, b, order);
        EXPECT_EQ(before || comes_before(b, a, order), a != b) << a << " " << b;
        if (!before) continue;
        EXPECT_FALSE(comes_before(b, a, order)) << a << " " << b;
        for (const std::string& c : names) {
          if (!comes_before(b, c, order)) continue;
          EXPECT_TRUE(comes_before(a, c, order)) << a << b << c;
        }
      }
    }
  }
}

}  // namespace
}  // namespace dataset
