export function SimulatorView() {
  return <p>Coming soon.</p>;
}
