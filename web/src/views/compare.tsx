export function CompareView() {
  return <p>Coming soon.</p>;
}
