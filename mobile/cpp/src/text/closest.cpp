#include "text/closest.hpp"

#include <algorithm>
#include <string_view>

namespace kerasformer {
namespace {

// The number of bytes in the longest common block, and in those before and after it.
size_t Common(std::string_view one, std::string_view other) {
  size_t longest = 0, start = 0, from = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    for (size_t j = 0; j < other.size(); ++j) {
      size_t length = 0;
      while (i + length < one.size() && j + length < other.size() && one[i + length] == other[j + length]) ++length;
      if (length > longest) {
        longest = length;
        start = i;
        from = j;
      }
    }
  }
  if (longest == 0) return 0;
  return longest + Common(one.substr(0, start), other.substr(0, from)) +
         Common(one.substr(start + longest), other.substr(from + longest));
}

}  // namespace

std::vector<std::string> Closest(const std::string& text, const std::vector<std::string>& known, size_t count, double least) {
  std::vector<std::pair<double, std::string>> found;
  for (const std::string& each : known) {
    const double size = static_cast<double>(each.size() + text.size());
    const double score = size > 0 ? 2 * static_cast<double>(Common(each, text)) / size : 1;
    if (score >= least) found.emplace_back(score, each);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> closest;
  for (size_t index = 0; index < std::min(count, found.size()); ++index) closest.push_back(found[index].second);
  return closest;
}

}  // namespace kerasformer
