// Asks the plan server for a plan and prints each segment when it comes.
//   ros2 run timely_llm_cpp_client ask drone "Find the cat and go to it."
#include <chrono>
#include <iostream>
#include <memory>
#include <string>

#include "rclcpp/rclcpp.hpp"
#include "rclcpp_action/rclcpp_action.hpp"
#include "timely_llm/action/plan.hpp"

using timely_llm::action::Plan;

int main(int argc, char ** argv)
{
  const auto words = rclcpp::init_and_remove_ros_arguments(argc, argv);
  const auto node = std::make_shared<rclcpp::Node>("cpp_client");
  const auto client = rclcpp_action::create_client<Plan>(node, "/plan_server/plan");
  if (words.size() != 3 || !client->wait_for_action_server(std::chrono::seconds(10))) {
    std::cerr << (words.size() != 3 ? "usage: ask SKILL_SET TASK" : "no plan server answers") << "\n";
    return 1;
  }
  Plan::Goal goal;
  goal.agent = node->get_name();
  goal.skill_set = words[1];
  goal.task = words[2];
  rclcpp_action::Client<Plan>::SendGoalOptions options;
  options.feedback_callback = [](auto, const std::shared_ptr<const Plan::Feedback> feedback) {
      const auto & segment = feedback->segment;
      std::cout << "segment " << segment.index << ": " << segment.text << std::endl;
    };
  const auto sent = client->async_send_goal(goal, options);
  if (rclcpp::spin_until_future_complete(node, sent) != rclcpp::FutureReturnCode::SUCCESS) {return 1;}
  if (!sent.get()) {return 1;}  // refused
  const auto done = client->async_get_result(sent.get());
  if (rclcpp::spin_until_future_complete(node, done) != rclcpp::FutureReturnCode::SUCCESS) {return 1;}
  const auto result = done.get().result;
  std::cout << (result->error_code ? result->error_msg : "plan: " + result->plan) << std::endl;
  return result->error_code == Plan::Result::NONE ? 0 : 1;
}
